"""Transposed convolution."""
