"""Text output of the command line."""
