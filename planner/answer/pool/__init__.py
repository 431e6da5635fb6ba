"""Several jobs on one pool of accelerators: fixed nodes, shared nodes, and a pool that is reached over a fabric."""
