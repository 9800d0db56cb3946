"""Kernels for reductions over axes."""
