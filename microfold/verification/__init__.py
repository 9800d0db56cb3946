"""Measurement of generated code, and its comparison with the reference."""
