"""Passes that partition the graph into regions for external code generators."""
