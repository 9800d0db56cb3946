"""The audio front end."""
