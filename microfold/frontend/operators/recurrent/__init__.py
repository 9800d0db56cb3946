"""Importers of operators with their own state."""
