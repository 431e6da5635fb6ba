"""Which columns of a plan a term depends on, and their distinct combinations."""

from __future__ import annotations

import numpy as np

from planner.distinct import Distinct, distinct
from planner.quantities import Number
from planner.spec.plan import Plan

LAYER = (
    "tp",
    "cp",
    "ep",
    "expert_tp",
    "micro_batch_size",
    "sequence_parallel",
    "context_kind",
    "compiled",
    "recompute",
)
"""What the kernels and activations of a layer depend on."""
STAGES = ("pp", "virtual_stages", "first_stage_layers", "last_stage_layers")
"""What the layers of a pipeline rank depend on."""
STATE = ("tp", "cp", "ep", "expert_tp", "dp_shard", "sharding", "gradient_sync", "offload", *STAGES)
"""What weights, gradients and optimizer states depend on."""
WIRE = (
    "tp", "pp", "cp", "ep", "expert_tp", "dp_shard", "dp_replicate", "rank_order", "context_kind",
    "micro_batch_size", "sequence_parallel",
)  # fmt: skip
"""What the activations that a layer sends depend on."""
SHARDS = (
    "tp", "pp", "cp", "ep", "expert_tp", "dp_shard", "dp_replicate", "rank_order", "sharding", "gradient_sync",
)  # fmt: skip
"""What the weights and gradients that ranks send depend on."""
ONCE = (*SHARDS, "offload", *STAGES)
"""What happens once per step depends on."""


def distinct_plans(plans: Plan, names: tuple[str, ...], *others: Number) -> Distinct:
    """Distinct combinations of some columns of the plans, and of further columns of whole numbers."""
    return distinct([*(np.asarray(getattr(plans, name)) for name in names), *others])
