"""Pieces of work on many processes, here or elsewhere: what is lost is repeated."""
