"""Whole training steps of a small decoder with the project's trainer, under a plan of all ranks."""

from __future__ import annotations

import gc
import signal
from statistics import median

import torch

from calibration.measure.timing import Bench, spread
from calibration.measurements import Measured, Parameter
from planner.emit.trainer import arguments
from planner.emit.trainer.record import Recorder
from planner.emit.trainer.settings import Layer, Model, Plan, Settings
from planner.emit.trainer.train import Run

WARM_UP = 2
FEWEST, MOST = 5, 30
"""Steps that are timed."""
FEWEST_LONG = 3
"""Of steps that take longer than a measurement should."""
CAP = 2.0
"""Times of a usual measurement that steps may take."""


def training_step(bench: Bench, **given: Parameter) -> Measured:
    """The median of some steps; `given` as `calibration.steps_plan.Step` has it."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    options = arguments.parse(["-"])
    options.record = None
    run: Run | None = None
    try:
        run = Run(_settings(given), options, bench.device)
        run.record = Recorder(None, warmup=0, silent=True)
        return _timed(bench, run)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        run = None
        gc.collect()
        if bench.on_cuda:
            torch.cuda.empty_cache()


def _timed(bench: Bench, run: Run) -> Measured:
    run.options.steps = WARM_UP
    run.steps()
    (once,) = bench.ranks.most(run.record.times[-1])
    fewest = FEWEST if once < bench.cap else FEWEST_LONG
    run.options.steps = int(max(fewest, min(MOST, CAP * bench.cap / once)))
    run.record.times.clear()
    run.steps()
    value, far = bench.ranks.most(median(run.record.times), spread(run.record.times))
    return Measured(value, far, len(run.record.times))


def _settings(given: dict[str, Parameter]) -> Settings:
    """The trainer's settings."""
    row = dict(given)
    heads = int(row["heads"])
    layer = Layer(
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=int(row["hidden"]) // heads,
        intermediate_size=int(row["intermediate"]),
    )
    model = Model("step", int(row["hidden"]), int(row["vocabulary"]), (layer,) * int(row["layers"]))
    plan = Plan(
        tp=int(row["tp"]),
        pp=int(row["pp"]),
        dp_shard=int(row["dp"]) if row["sharding"] != "none" else 1,
        dp_replicate=int(row["dp"]) if row["sharding"] == "none" else 1,
        micro_batch_size=int(row["micro_batch_size"]),
        num_microbatches=int(row["num_microbatches"]),
        sharding=str(row["sharding"]),
        recompute=str(row["recompute"]),
        schedule="one_f_one_b" if int(row["pp"]) > 1 else "none",
        sequence_parallel=int(row["tp"]) > 1,
        compiled=row["compiled"] == "yes",
    )
    return Settings(model, plan, int(row["seq_len"]), precision=str(row["dtype"]), attention="sdpa")
