"""What `slide_window` knows of operators and graphs."""
