"""Measurements made by the planner's own formulas from a known profile give that profile back."""

from dataclasses import replace

import numpy as np
import pytest

from calibration.collective_profile import Call, _links, _network, calls_of, fitted_collectives
from calibration.measurement_plan import SIZES, TINY_GEMM, usual_plan
from calibration.measurements import Entry, Machine, Measured
from calibration.profile_fit import fit_of
from calibration.record import Record
from planner.catalogue.hardware import cluster
from planner.catalogue.profiles import profile
from planner.cost import kernels as cost
from planner.cost.overlap import overlapped_time
from planner.estimate.host import EAGER_OPERATORS
from planner.estimate.kernels import BYTES, AttentionCore, Kernels
from planner.estimate.layer_time import EAGER_FACTOR
from planner.spec.profile import CollectiveFit
from planner.tables import Table

CLUSTER = cluster("8xh100-sxm")
MACHINE = Machine(
    device="cuda", name="NVIDIA H100 80GB HBM3", host="here", cores=96, processes=8, nodes=1, threads=8, memory=80e9,
    cache=5e7,
)  # fmt: skip
USUAL = SIZES["cuda"]
BASE = profile(CLUSTER.accelerator, "pytorch")


def grid(axes, seed, low, high):
    """Shares that change smoothly over a grid."""
    noise = np.random.default_rng(seed)
    shape = [len(axis) for axis in axes]
    slopes = np.zeros(shape)
    for axis, size in enumerate(shape):
        along = [-1 if other == axis else 1 for other in range(len(shape))]
        slopes = slopes + np.linspace(0, noise.uniform(0.2, 0.5), size).reshape(along)
    return Table.of(axes, np.clip(low + slopes * (high - low), low, high).ravel())


def truth():
    """A profile unlike the catalogue's, its tables on the grid that is measured."""
    gemm = grid([USUAL.rows, USUAL.widths, USUAL.widths], 1, 0.35, 0.85)
    attention = grid([USUAL.head_dims, USUAL.lengths], 2, 0.2, 0.7)
    own = {
        ("nvlink4", name): CollectiveFit(0.7 + 0.03 * number, 9e-6 + 2e-6 * number, 3e-6, 2e-6 + 2e-7 * number, 0.2)
        for number, name in enumerate(("all_gather", "reduce_scatter", "all_to_all", "all_reduce"))
    }
    # Of a message between two ranks the start tells all of the latency.
    one_step = BASE.collectives["nvlink4", "send_recv"].step_latency
    own["nvlink4", "send_recv"] = CollectiveFit(0.6, 11e-6, one_step)
    own["nvlink4-nvls", "all_reduce"] = CollectiveFit(0.9, 15e-6, 2e-6, 3e-6, 0.15)
    own = {
        key: fit if BASE.collectives[key].low_latency_share else replace(fit, low_latency_share=0.0, hop_latency=0.0)
        for key, fit in own.items()
    }
    return replace(
        BASE, gemm={**BASE.gemm, "bf16": gemm, "tf32": gemm}, matmul_tiles={}, compute_scale=1.0,
        attention={"flash": attention, "sdpa": attention}, attention_backward_efficiency=0.7, elementwise_scale=1.4,
        memory_efficiency=0.77, overlap_penalty=0.3, launch_time=9e-6, kernel_overhead=3e-6, attention_overhead=7e-6,
        collectives={**BASE.collectives, **own},
    )  # fmt: skip


TRUTH = truth()


def kernels(profile, precision="bf16", backend="flash"):
    return Kernels(CLUSTER.accelerator, profile, precision, backend)


def gemm_time(profile, row):
    if (row["m"], row["n"], row["k"]) == TINY_GEMM:
        return profile.kernel_overhead
    return float(kernels(profile, row["dtype"]).matmul(row["m"], row["n"], row["k"])) / profile.compute_scale


def attention_time(profile, row):
    if row["seq_len"] < 100:
        return profile.attention_overhead
    core = AttentionCore(1, row["seq_len"], row["seq_len"], row["heads"], row["heads"], row["head_dim"],
                         row["head_dim"], causal=True)  # fmt: skip
    both = kernels(profile, backend="flash").attention(core)
    return float(both[row["direction"] == "backward"]) / profile.compute_scale


def elementwise_time(profile, row):
    size = {"norm": 2.0, "residual": 3.0, "activation": 3.0, "rotary": 2.0}[row["operator"]]
    moved = size * row["tokens"] * row["width"] * BYTES[row["dtype"]]
    return float(kernels(profile).stream(moved * EAGER_FACTOR * profile.elementwise_scale))


def collective_time(profile, name, row):
    call = Call(name, row["bytes"], row["ranks"], row["ranks"], 0.0)
    return float(_network(CLUSTER, profile.collectives).times(name)(call.size, _links(call, CLUSTER)))


def measured(profile, measurement):
    """What a measurement gives where a profile is the truth; None of what says nothing of a profile."""
    row, bandwidth = measurement.parameters, kernels(profile).bandwidth
    times = {
        "copy": lambda: cost.memory_bound_time(2.0 * row["bytes"], bandwidth),
        "triad": lambda: cost.memory_bound_time(3.0 * row["bytes"], bandwidth),
        "gemm": lambda: gemm_time(profile, row),
        "attention": lambda: attention_time(profile, row),
        "elementwise": lambda: elementwise_time(profile, row),
        "tiny_layer": lambda: profile.launch_time * EAGER_OPERATORS,
    }
    if measurement.name == "overlap":
        both = float(overlapped_time(0.012, 0.010, penalty=profile.overlap_penalty))
        return Measured(both, parts={"compute": 0.012, "communication": 0.010})
    if measurement.name in times:
        return Measured(float(times[measurement.name]()))
    if "ranks" in row:
        return Measured(collective_time(profile, measurement.name, row))
    return None


def record_of(profile, tmp_path, disturb=lambda one: 1.0, keep=lambda one: True):
    record = Record(tmp_path / "x.json", MACHINE)
    for one in usual_plan(MACHINE):
        result = measured(profile, one)
        if result is not None and keep(one):
            record.entries.append(Entry(one, replace(result, value=result.value * disturb(one)), "2026-12-01T00:00:00"))
    return record


SCALARS = (
    "attention_backward_efficiency", "elementwise_scale", "memory_efficiency", "overlap_penalty", "launch_time",
    "kernel_overhead", "attention_overhead",
)  # fmt: skip


def shapes(number):
    """Products between the sizes that were measured; those of few rows are held back by memory."""
    lottery = np.random.default_rng(number)
    low, high = np.log([1024, 1024, 1024]), np.log([8192, 16384, 16384])
    return np.exp(lottery.uniform(low, high, (200, 3))).T


def test_a_known_profile_is_found_again_within_two_percent(tmp_path):
    found = fit_of(record_of(TRUTH, tmp_path), CLUSTER, "pytorch").profile
    for name in SCALARS:
        assert getattr(found, name) == pytest.approx(getattr(TRUTH, name), rel=0.02), name
    m, n, k = shapes(0)
    times = [kernels(each).matmul(m, n, k) / each.compute_scale for each in (found, TRUTH)]
    assert times[0] == pytest.approx(times[1], rel=0.02)
    points = np.array([[64.0, 90.0, 128.0], [1500.0, 8000.0, 3000.0]])
    assert found.attention["flash"].at(*points) == pytest.approx(TRUTH.attention["flash"].at(*points), rel=0.02)


def test_collectives_are_found_again_within_two_percent(tmp_path):
    record = record_of(TRUTH, tmp_path)
    found = fit_of(record, CLUSTER, "pytorch")
    assert {each.key for each in found.collectives} == {
        *(("nvlink4", name) for name in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv")),
        ("nvlink4-nvls", "all_reduce"),
    }
    for call in calls_of(record):
        row = {"bytes": call.size, "ranks": call.ranks}
        predicted = collective_time(found.profile, call.name, row)
        assert predicted == pytest.approx(call.seconds, rel=0.02), call
    for each in found.collectives:
        true = TRUTH.collectives[each.key]
        # A switch reduces for groups of eight alone, and few calls tell five figures less well.
        tolerance = 0.05 if each.key[0].endswith("nvls") else 0.02
        for name in each.found.told:
            assert getattr(each.fit, name) == pytest.approx(getattr(true, name), rel=tolerance), (each.key, name)


def test_noise_and_outliers_leave_ten_percent(tmp_path):
    lottery = np.random.default_rng(3)

    def disturbed(one):
        wild = one.name not in ("tiny_layer", "overlap", "copy", "triad") and lottery.random() < 0.08
        return float(np.exp(lottery.normal(0, 0.03))) * (2.0 if wild else 1.0)

    record = record_of(TRUTH, tmp_path, disturbed)
    found = fit_of(record, CLUSTER, "pytorch")
    m, n, k = shapes(1)
    off = kernels(found.profile).matmul(m, n, k) / found.profile.compute_scale
    off = np.abs(off / kernels(TRUTH).matmul(m, n, k) - 1)
    assert np.median(off) < 0.10
    calls = calls_of(record_of(TRUTH, tmp_path))
    far = [
        abs(collective_time(found.profile, call.name, {"bytes": call.size, "ranks": call.ranks}) / call.seconds - 1)
        for call in calls
    ]
    assert np.median(far) < 0.05
    assert np.quantile(far, 0.9) < 0.10


def test_with_one_size_of_group_latencies_cannot_be_told_apart_and_that_is_said(tmp_path):
    record = record_of(TRUTH, tmp_path, keep=lambda one: one.parameters.get("ranks", 8) == 8)
    found = fit_of(record, CLUSTER, "pytorch")
    gather = next(each for each in found.collectives if each.key == ("nvlink4", "all_gather"))
    assert {"start", "step_latency", "hop_latency"} <= set(gather.untold)
    assert gather.fit.efficiency == pytest.approx(TRUTH.collectives[gather.key].efficiency, rel=0.02)
    for name in gather.found.held:
        assert getattr(gather.fit, name) == pytest.approx(getattr(BASE.collectives[gather.key], name), rel=0.01)
    assert any("nvlink4 all_gather" in note for note in found.profile.notes)


def test_small_messages_alone_say_nothing_of_bandwidth():
    key = ("nvlink4", "all_to_all")
    sizes = [(size, ranks) for size in (1024, 4096, 65536) for ranks in (2, 4, 8)]
    calls = [
        Call(key[1], size, ranks, ranks, collective_time(TRUTH, key[1], {"bytes": size, "ranks": ranks}))
        for size, ranks in sizes
    ]
    (found,) = fitted_collectives(calls, CLUSTER, BASE.collectives)
    assert "efficiency" in found.untold
    assert found.fit.efficiency == BASE.collectives[key].efficiency


def test_what_was_not_measured_is_the_catalogues_and_named(tmp_path):
    record = record_of(TRUTH, tmp_path, keep=lambda one: one.name == "copy")
    found = fit_of(record, CLUSTER, "pytorch").profile
    assert found.memory_efficiency == pytest.approx(0.77, rel=0.01)
    assert found.launch_time == BASE.launch_time
    assert found.collectives == BASE.collectives
    assert found.level == BASE.level
    assert "launch_time" in next(note for note in found.notes if note.startswith("not measured here"))


def test_one_product_scales_the_catalogues_table(tmp_path):
    one = next(one for one in usual_plan(MACHINE) if one.name == "gemm")
    record = record_of(TRUTH, tmp_path, keep=lambda other: other.key == one.key)
    found = fit_of(record, CLUSTER, "pytorch").profile
    row = one.parameters
    assert gemm_time(found, row) == pytest.approx(gemm_time(TRUTH, row), rel=0.02)
    assert len(found.gemm["bf16"].axes[0]) == len(BASE.gemm["bf16"].axes[0])
