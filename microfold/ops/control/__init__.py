"""Operators for calls, conditions and loops."""
