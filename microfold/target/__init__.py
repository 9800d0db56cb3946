"""Targets: descriptions of cores with their features, timing and memories."""

from microfold.target.description import Target, available, load

__all__ = ["Target", "available", "load"]
