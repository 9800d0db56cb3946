"""Fully connected kernels."""
