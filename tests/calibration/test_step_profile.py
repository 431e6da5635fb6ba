"""Whole training steps: the trainer's and the planner's view of one are the same, and what they add is found again."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from calibration.measure.ranks import Ranks
from calibration.measure.timing import Bench
from calibration.measure.training_step import _settings, training_step
from calibration.measurements import Entry, Machine, Measured
from calibration.profile_fit import fit_of
from calibration.record import Record
from calibration.step_profile import TimedStep, fitted_factors, step_times, timed_steps, with_values
from calibration.steps_plan import SMALL, Step, training_steps
from planner.catalogue.hardware import cluster
from planner.catalogue.profiles import profile
from planner.emit.trainer.model import Decoder

CLUSTER = cluster("8xh100-sxm")
GPU = Machine(
    device="cuda", name="NVIDIA H100 80GB HBM3", host="here", cores=96, processes=8, nodes=1, threads=8, memory=80e9,
    cache=5e7,
)  # fmt: skip
BASE = profile(CLUSTER.accelerator, "pytorch")
TRUTH = replace(BASE, compute_scale=1.45, fixed_time=0.004)
STEPS = [Step.of(one.parameters) for one in training_steps(GPU)]
UNSEEN = replace(SMALL["cuda"], hidden=3072, intermediate=8192, heads=24, micro_batch_size=4, dp=8, sharding="zero3")


def timed(truth, disturb=lambda: 1.0):
    seconds = step_times([TimedStep(step, 0.0) for step in STEPS], CLUSTER, truth)
    return [TimedStep(step, float(time) * disturb()) for step, time in zip(STEPS, seconds, strict=True)]


def test_steps_tell_what_they_add_to_their_parts():
    found = fitted_factors(timed(TRUTH), CLUSTER, BASE)
    assert found.values["compute_scale"] == pytest.approx(1.45, rel=0.02)
    assert found.left_out < 0.02


def test_a_step_that_was_not_measured_is_predicted():
    found = fitted_factors(timed(TRUTH), CLUSTER, BASE)
    unseen = [TimedStep(UNSEEN, 0.0)]
    predicted = step_times(unseen, CLUSTER, with_values(BASE, found.values))
    assert predicted == pytest.approx(step_times(unseen, CLUSTER, TRUTH), rel=0.02)


def test_noise_and_an_outlier_leave_ten_percent():
    lottery = np.random.default_rng(5)
    rows = timed(TRUTH, lambda: float(np.exp(lottery.normal(0, 0.03))))
    rows[2] = replace(rows[2], seconds=2 * rows[2].seconds)
    found = fitted_factors(rows, CLUSTER, BASE)
    off = step_times(rows, CLUSTER, with_values(BASE, found.values)) / step_times(rows, CLUSTER, TRUTH)
    assert np.median(np.abs(off - 1)) < 0.05
    assert np.abs(off - 1).max() < 0.15
    assert found.left_out > 0.05


def test_steps_without_order_leave_the_profile_as_it_was(tmp_path):
    lottery = np.random.default_rng(6)
    found = fit_of(record_of(timed(TRUTH, lambda: float(np.exp(lottery.normal(0, 1.2)))), tmp_path), CLUSTER, "pytorch")
    assert found.profile.compute_scale == BASE.compute_scale
    assert found.profile.level == BASE.level
    assert "training steps" in " ".join(found.origins.untold)


def test_measured_steps_make_a_profile_calibrated(tmp_path):
    found = fit_of(record_of(timed(TRUTH), tmp_path), CLUSTER, "pytorch")
    assert found.profile.level == "calibrated"
    assert found.profile.error < BASE.error
    assert "compute_scale" in found.origins.measured


def test_two_steps_are_too_few():
    assert fitted_factors(timed(TRUTH)[:2], CLUSTER, BASE) is None


def record_of(rows, tmp_path):
    record = Record(tmp_path / "x.json", GPU)
    record.entries = [Entry(row.step.measurement, Measured(row.seconds), "2026-12-01T00:00:00") for row in rows]
    assert timed_steps(record) == rows
    return record


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.measurement.key[:60])
def test_planner_and_trainer_have_the_same_step(step):
    settings = _settings(step.measurement.parameters)
    with torch.device("meta"):
        built = sum(parameter.numel() for parameter in Decoder(settings.model).parameters())
    assert built == step.model.parameters
    assert settings.plan.world_size == step.ranks == GPU.processes
    assert settings.plan.global_batch_size == step.workload.global_batch_size
    for name in ("tp", "pp", "dp_shard", "dp_replicate", "micro_batch_size", "num_microbatches"):
        assert getattr(settings.plan, name) == getattr(step.plan, name)


def test_a_step_runs_here():
    step = replace(SMALL["cpu"], layers=1, hidden=32, intermediate=64, heads=2, vocabulary=64, seq_len=16)
    bench = Bench(Ranks(torch.device("cpu")), cache=1e6, memory=1e9, cap=0.05)
    found = training_step(bench, **step.measurement.parameters)
    assert found.value > 0
    assert found.n >= 3


def test_a_plan_that_cannot_run_fails_as_other_measurements_do():
    bench = Bench(Ranks(torch.device("cpu")), cache=1e6, memory=1e9, cap=0.05)
    with pytest.raises((RuntimeError, ValueError)):
        training_step(bench, **replace(SMALL["cpu"], tp=2).measurement.parameters)
