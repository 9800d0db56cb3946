"""Code that the user writes."""
