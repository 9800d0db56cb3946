"""Lowering of an optimised graph to a program: kernel selection, memory planning, loops and their bodies."""
