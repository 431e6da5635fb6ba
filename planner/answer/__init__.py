"""Whole answers: a question with its defaults filled in, and what the planner says to it."""
