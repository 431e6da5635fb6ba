"""`python -m trainer plan.json`, usually under torchrun."""

from .train import main

main()
