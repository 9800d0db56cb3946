"""Passes that inline, specialise, narrow and remove subgraphs."""
