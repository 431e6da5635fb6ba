"""The whole loop without a GPU: calibrate hosts on slowed links, predict plans that were not timed, and run them."""

import json
import os
import shutil
from dataclasses import asdict, replace
from statistics import median

import numpy as np
import pytest

from calibration.machine_cluster import cluster_of
from calibration.profile_fit import fit_of
from calibration.record import Record
from calibration.step_profile import TimedStep, step_times
from calibration.steps_plan import Step

from .hosts import hosts, torchrun

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not os.environ.get("PLANNER_LOOP"),
        reason="a quarter of an hour on a machine with no other work: PLANNER_LOOP=1",
    ),
    pytest.mark.skipif(
        os.geteuid() != 0 or not all(map(shutil.which, ("ip", "tc", "taskset"))),
        reason="needs root, iproute2 and taskset",
    ),
]

SLOW = 100
"""Mb/s at which the link decides."""
MINUTES = 2
SMALL = Step("fp32", 4, 192, 512, 6, 2048, 128, micro_batch_size=2)
TINY = replace(SMALL, hidden=128, intermediate=384, heads=4, seq_len=64, micro_batch_size=4)
APART = 1.5
"""Plans whose times differ by more than this have an order, whatever else the machine does."""
BAR = 0.10


def plans(base, ranks):
    """Replicas, FSDP, tensor and pipeline parallelism of one model and batch."""
    batch = base.micro_batch_size * ranks
    return {
        "ddp": replace(base, dp=ranks),
        "fsdp": replace(base, dp=ranks, sharding="zero3"),
        "tp": replace(base, tp=ranks, micro_batch_size=batch),
        "pp": replace(base, pp=ranks, micro_batch_size=batch // 4, num_microbatches=4),
    }


@pytest.fixture(scope="module")
def loop(tmp_path_factory):
    """A function from a link's Mb/s and steps to predicted times and measured medians."""

    def run(megabits, steps):
        folder = tmp_path_factory.mktemp("loop")
        profile, asked, times = folder / "here.json", folder / "steps.json", folder / "times.json"
        asked.write_text(json.dumps([asdict(step) for step in steps]))
        with hosts(2, megabits):
            torchrun(
                2,
                1,
                "planner",
                "calibrate",
                "run",
                "--device",
                "cpu",
                "--minutes",
                MINUTES,
                "--out",
                profile,
                "--quiet",
            )
            torchrun(2, 1, "tests.calibration.timed_steps", asked, times, 2)
        record = Record.read(profile)
        cluster = cluster_of(record).cluster
        fitted = fit_of(record, cluster, "pytorch").profile
        measured = np.array([row[0] for row in json.loads(times.read_text())])
        return step_times([TimedStep(step, 0.0) for step in steps], cluster, fitted), measured

    return run


@pytest.fixture(scope="module")
def slowed(loop):
    """Name -> predicted and measured time of plans of two models over a slow link."""
    named = {
        f"{size} {name}": step
        for size, base in (("small", SMALL), ("tiny", TINY))
        for name, step in plans(base, 2).items()
    }
    return dict(zip(named, zip(*loop(SLOW, list(named.values())), strict=True), strict=True))


@pytest.fixture(scope="module")
def unslowed(loop):
    named = plans(SMALL, 2)
    return dict(zip(named, zip(*loop(None, list(named.values())), strict=True), strict=True))


def test_where_the_link_decides_steps_are_predicted_within_ten_percent(slowed):
    """Of pipelines so little crosses the link that the processors decide, which other work keeps busy."""
    off = {name: abs(float(p / m) - 1) for name, (p, m) in slowed.items() if not name.endswith("pp")}
    assert median(off.values()) <= BAR, off


@pytest.mark.parametrize("times", ["slowed", "unslowed"])
def test_plans_that_lie_apart_are_in_the_right_order(times, request):
    rows = list(request.getfixturevalue(times).items())
    wrong = [
        (a, b)
        for a, (predicted, measured) in rows
        for b, (other, took) in rows
        if a.split()[0] == b.split()[0] or times == "unslowed"
        if took > APART * measured and predicted > other
    ]
    assert wrong == [], rows


def test_the_choice_changes_as_the_link_slows_and_so_does_the_fastest(slowed, unslowed):
    own = {name.removeprefix("small "): times for name, times in slowed.items() if name.startswith("small")}
    for by in (0, 1):
        assert min(own, key=lambda name: own[name][by]) == "pp"
        assert min(unslowed, key=lambda name: unslowed[name][by]) == "ddp"
