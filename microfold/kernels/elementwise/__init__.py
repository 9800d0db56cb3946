"""Kernels that compute their results element by element."""
