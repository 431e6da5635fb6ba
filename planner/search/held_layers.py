"""How many layers each pipeline rank of a plan can hold."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from planner.estimate.memory import peak_by_rank
from planner.estimate.setting import Job
from planner.estimate.stages import Stages, all_ranks
from planner.quantities import Bytes, Column
from planner.spec.plan import Plan


def peaks_of(job: Job, plan: Plan, ranks: Stages) -> Column:
    """Peak memory (bytes) of ranks of one plan that hold such layers, shape (ranks, rows of layers)."""
    plans = plan.columns()[np.zeros(ranks.layers.shape[-1], dtype=int)]
    return peak_by_rank(job.model, plans, job.workload, job.stack, ranks)


def held_layers(job: Job, plan: Plan, limit: Bytes | Column) -> Column:
    """How far each rank's layers may go, by rank and first layer, shape (ranks, layers): more layers need more memory.

    A rank whose first layer is i may have layers up to, but without, the entry [rank, i]; i where it cannot hold that
    one. `limit` is what a rank may use in bytes, one for all or one each.
    """
    model = job.model
    layers, pattern = len(model.layer_pattern), list(model.layer_pattern)
    kinds = np.eye(len(model.layer_kinds))
    counts = np.vstack([0 * kinds[:1], kinds[pattern]]).cumsum(axis=0)
    begins, ends = np.triu_indices(layers + 1, 1)
    held, place = np.unique(counts[ends] - counts[begins], axis=0, return_inverse=True)
    ranks, shape = all_ranks(model, plan), (int(plan.pp), len(held))
    each = {name: np.broadcast_to(getattr(ranks, name), shape) for name in ("has_embedding", "has_head", "rank")}
    holding = np.broadcast_to(held.T[:, None, :], (held.shape[1], *shape))
    limits = np.broadcast_to(np.asarray(limit, dtype=float), int(plan.pp))[:, None]
    fits = peaks_of(job, plan, replace(ranks, layers=holding, **each)) <= limits
    return np.array([np.arange(layers) + np.bincount(begins, fit[place.ravel()], layers).astype(int) for fit in fits])
