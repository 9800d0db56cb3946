"""Importers of operators that move elements without computing any."""
