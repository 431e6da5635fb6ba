"""The charts: from records of planner to what altair draws."""
