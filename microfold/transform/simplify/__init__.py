"""Simplifications: constant folding, merged nodes and dead code elimination."""
