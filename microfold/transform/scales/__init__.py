"""Passes that fold scales and shifts into constants."""
