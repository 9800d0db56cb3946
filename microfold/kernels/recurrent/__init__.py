"""Kernels for recurrent layers and other layers with state."""
