"""The reference's arithmetic, in numpy."""
