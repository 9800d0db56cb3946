"""Fusion, and what lies where."""
