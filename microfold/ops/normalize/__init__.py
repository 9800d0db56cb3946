"""Softmax and normalisation operators."""
