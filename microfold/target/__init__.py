"""Targets: a core, its features, its timing."""

from microfold.target.description import Target, available, load

__all__ = ["Target", "available", "load"]
