"""What a prediction has to beat: every run at the same share of peak."""

from __future__ import annotations

from planner.quantities import Seconds
from planner.validate.runs import MeasuredRun

FLOP_PER_PARAMETER = {"full": 6.0, "lora": 4.0, "qlora": 4.0}
"""FLOP per parameter and token: forward and backward; frozen weights need no gradient."""


def constant_utilization_time(run: MeasuredRun) -> Seconds:
    """Step time at full utilisation: 6 N D over the peak of all accelerators; 0 where the row cannot be read."""
    if run.configuration is None:
        return 0.0
    model, workload, cluster = run.configuration.model, run.configuration.workload, run.configuration.cluster
    peak = cluster.accelerator.peak.get(workload.precision, 0.0)
    flop = FLOP_PER_PARAMETER[workload.method] * float(model.active_parameters) * workload.tokens_per_step
    return flop / (peak * cluster.world_size) if peak else 0.0
