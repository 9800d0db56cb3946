"""Kernels for pooling."""
