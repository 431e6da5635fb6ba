"""A small trainer that executes a plan.json with plain PyTorch: `torchrun ... -m trainer plan.json`.

The folder stands on its own: it needs torch and the standard library, so it can be copied beside a plan and run
anywhere. Read `train.py` first; `parallelize.py` is the one place where parallelism is applied.
"""
