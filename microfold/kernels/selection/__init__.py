"""Kernel selection: which kernel computes each layer."""
