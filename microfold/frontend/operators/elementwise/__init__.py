"""Importers of elementwise operators."""
