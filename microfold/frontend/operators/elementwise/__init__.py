"""Operators element by element."""
