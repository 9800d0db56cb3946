"""Files, folders, signals."""
