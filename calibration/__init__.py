"""Measures hardware, and fits the profiles that the planner predicts from."""
