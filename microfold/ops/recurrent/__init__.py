"""Layers with state."""
