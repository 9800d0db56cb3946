"""Passes that change layouts and remove transposes."""
