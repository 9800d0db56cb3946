"""Depthwise convolution kernels."""
