"""From accumulators to results: exact forms, each named by what it does."""
