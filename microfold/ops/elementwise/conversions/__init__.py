"""Conversions between floats and integers, scales and element types."""
