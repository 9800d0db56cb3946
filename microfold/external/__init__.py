"""External code generators: parts of a model that somebody else's code computes."""
