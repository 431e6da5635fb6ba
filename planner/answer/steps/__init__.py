"""Measured steps of runs, read from what trainers and profilers leave, beside what is predicted of them."""
