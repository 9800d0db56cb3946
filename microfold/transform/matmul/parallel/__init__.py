"""Search for parallel nodes, their combination, and the slices of the combined result."""
