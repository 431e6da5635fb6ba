"""Plans, clusters, networks, methods or models side by side, and what a change of the inputs would do."""
