"""Importers of calls, conditions, loops and resource variables."""
