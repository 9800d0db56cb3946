"""Activation functions, with one operand or with constants."""
