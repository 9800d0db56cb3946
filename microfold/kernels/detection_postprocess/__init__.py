"""Kernels that choose the boxes of a detector."""
