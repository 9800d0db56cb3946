"""Operators that keep state of their own."""
