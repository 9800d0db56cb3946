"""Kernels for softmax and norms."""
