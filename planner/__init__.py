"""A simulator and planner for parallelism strategies of large-model training."""
