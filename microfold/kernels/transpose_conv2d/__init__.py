"""Transposed convolution kernels."""
