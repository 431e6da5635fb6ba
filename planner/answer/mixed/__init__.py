"""Clusters of unequal nodes: what one pace for all loses, and what wins it back."""
