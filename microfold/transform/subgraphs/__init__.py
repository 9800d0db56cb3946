"""Subgraphs: inlined, shared, removed."""
