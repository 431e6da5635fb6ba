"""Enumerate legal plans, drop what does not fit, rank the rest."""
