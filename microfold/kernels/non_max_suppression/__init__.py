"""Kernels for non-maximum suppression."""
