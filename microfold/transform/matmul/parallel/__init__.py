"""Nodes that do the same side by side, found, combined and taken apart again."""
