"""Calls, conditions, loops and resource variables."""
