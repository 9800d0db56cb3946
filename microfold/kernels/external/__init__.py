"""Kernels that call code of the user."""
