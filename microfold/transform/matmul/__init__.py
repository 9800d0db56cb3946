"""Passes on matrix products, fully connected layers and parallel layers."""
