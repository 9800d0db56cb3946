"""Kernels for the audio front end."""
