"""Kernels, in a folder for each family of operators; `loading` says when they are imported."""
