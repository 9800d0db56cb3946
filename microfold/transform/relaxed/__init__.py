"""Passes that require relaxed numerics."""
