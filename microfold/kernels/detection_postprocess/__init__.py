"""Kernels that select the boxes of a detector."""
