"""Scales and shifts into constants."""
