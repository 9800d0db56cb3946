"""Kernels for products of two computed matrices."""
