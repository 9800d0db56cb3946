"""Regions for external code generators."""
