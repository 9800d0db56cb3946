"""Layouts, and transposes that go away."""
