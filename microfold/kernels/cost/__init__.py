"""Cost of a kernel call: how often each part of its code runs, times the cost of one run on a core."""
