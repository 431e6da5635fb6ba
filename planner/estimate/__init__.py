"""Records and formulas joined: memory, time, interval of every plan."""
