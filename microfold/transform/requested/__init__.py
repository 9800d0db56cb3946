"""Passes that run only on request."""
