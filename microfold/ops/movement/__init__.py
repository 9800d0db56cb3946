"""Elements moved, none computed."""
