"""Files that run a plan."""
