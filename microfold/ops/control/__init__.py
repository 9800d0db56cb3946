"""Calls, conditions and loops."""
