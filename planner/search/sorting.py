"""Which rows come first: total orders, so that the answer does not depend on how the rows were found."""

from __future__ import annotations

import numpy as np

from planner.quantities import Column
from planner.spec.plan import Plan, Schedule

KEY = (
    *("pp", "tp", "cp", "ep", "expert_tp", "offload", "recompute", "sharding", "virtual_stages", "dp_replicate"),
    *("dp_shard", "micro_batch_size", "num_microbatches", "rank_order", "context_kind", "sequence_parallel"),
    *("gradient_sync", "async_tp", "compiled", "first_stage_layers", "last_stage_layers"),
)
"""Of equal plans the one that is simplest to set up comes first: lower degrees and codes, in this order."""


def first_rows(plans: Plan, values: tuple[Column, Column], count: int) -> Column:
    """Indices of the first `count` rows by two values, the smaller the better, then by `KEY`."""
    primary, secondary = values
    count = min(count, len(primary))
    if not count:
        return np.zeros(0, dtype=np.int64)
    worst = np.partition(primary, count - 1)[count - 1]
    near = np.flatnonzero(primary <= worst)
    return near[_ordered(plans[near], primary[near], secondary[near])][:count]


def front_rows(plans: Plan, time: Column, peak: Column) -> Column:
    """Indices of the rows that no other row beats in both time and peak memory, fastest first, one of equals each."""
    worth = np.flatnonzero(peak <= peak[time == time.min()].min())
    order = worth[np.lexsort((peak[worth], time[worth]))]
    least_before = np.minimum.accumulate(np.concatenate([[np.inf], peak[order][:-1]]))
    chosen = order[peak[order] < least_before]
    at = np.minimum(np.searchsorted(time[chosen], time), len(chosen) - 1)
    equal = np.flatnonzero((time == time[chosen][at]) & (peak == peak[chosen][at]))
    equal = equal[_ordered(plans[equal], time[equal], peak[equal])]
    return equal[np.unique(time[equal], return_index=True)[1]]


def _ordered(plans: Plan, primary: Column, secondary: Column) -> Column:
    keys = [np.asarray(getattr(plans, name)) for name in KEY]
    usual_name_first = np.where(np.asarray(plans.schedule) == Schedule.GPIPE, len(Schedule), plans.schedule)
    return np.lexsort((*reversed(keys), usual_name_first, secondary, primary))
