"""Constants in the order in which inner loops read them."""
