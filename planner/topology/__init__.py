"""A cluster as a graph of links, and what each group of ranks gets from it."""
