"""Cycle estimates for cores with overlapping instructions, by a scoreboard of the core's pipeline."""
