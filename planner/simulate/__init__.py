"""Event simulation of a step, independent of the closed forms."""
