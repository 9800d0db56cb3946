"""What other code generators compute."""
