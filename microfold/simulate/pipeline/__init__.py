"""Cycles on cores whose instructions overlap: what was executed, on a scoreboard of the core's pipeline."""
