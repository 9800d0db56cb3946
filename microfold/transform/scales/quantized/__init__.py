"""Products and sums with constants in quantised graphs: what they mean, and how weights take them up."""
