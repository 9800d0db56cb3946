"""Kernels that move elements without computing."""
