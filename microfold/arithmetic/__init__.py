"""Arithmetic of the reference kernels, in numpy."""
