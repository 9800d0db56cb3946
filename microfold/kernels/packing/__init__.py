"""Packing of constants in the order in which inner loops read them."""
