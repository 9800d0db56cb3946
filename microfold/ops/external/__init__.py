"""Operators that external code computes."""
