"""What a build says of itself."""
