"""From an optimised graph to a program: kernels chosen, places given, loops with what they run."""
