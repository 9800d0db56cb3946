"""Measures layers of many sizes on simulated cores, and fits the coefficients of cost models to them."""
