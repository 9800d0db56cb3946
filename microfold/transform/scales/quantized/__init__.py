"""Products and sums with constants in quantised graphs, and their folding into weights."""
