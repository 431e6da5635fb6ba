"""Time and money of a whole run."""
