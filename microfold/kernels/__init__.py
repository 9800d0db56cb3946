"""Kernels, in one folder for each family of operators. `loading` imports them on demand."""
