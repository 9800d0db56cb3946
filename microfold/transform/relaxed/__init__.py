"""For relaxed numerics only."""
