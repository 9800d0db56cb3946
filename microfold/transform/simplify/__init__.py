"""Less of the same: folded constants, merged and dropped nodes."""
