"""Activations of networks, of one operand or with constants."""
