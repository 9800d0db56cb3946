"""Exact forms of requantisation, from accumulators to outputs; each module is named after its form."""
