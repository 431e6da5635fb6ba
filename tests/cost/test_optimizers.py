import numpy as np
import pytest

from planner.cost.optimizers import (
    OPTIMIZERS,
    STATE_ELEMENTS,
    factored_moment_bytes,
    host_step_time,
    mean_state_bytes,
    offload_time,
    optimizer_step_time,
    quantized_moment_bytes,
    relative_traffic,
    state_bytes,
    step_traffic,
)
from planner.spec.workload import OPTIMIZERS as KNOWN
from planner.spec.workload import STATES


def test_every_optimizer_and_state_of_a_workload_has_its_bytes():
    assert set(OPTIMIZERS) == set(KNOWN)
    assert set(STATE_ELEMENTS) == set(STATES)
    assert all(np.isfinite(state_bytes(name, state)) for name in KNOWN for state in STATES)


def test_every_optimizer_names_its_source():
    assert all(kind.source for kind in OPTIMIZERS.values())


@pytest.mark.parametrize(
    ("optimizer", "mixed", "sixteen"), [("adamw", 8, 4), ("sgd", 0, 0), ("sgd-momentum", 4, 2), ("lion", 4, 2)]
)
def test_states_follow_the_precision_of_the_weights(optimizer, mixed, sixteen):
    # fms-acceleration: 6 bytes per parameter (2 weights + 4 AdamW) in pure bf16, 16 with fp32 shards (4 + 4 + 8).
    assert (state_bytes(optimizer, "mixed"), state_bytes(optimizer, "16bit")) == (mixed, sixteen)


def test_eight_bit_states_take_a_quarter_and_their_scales():
    assert state_bytes("adamw-8bit", "mixed") == state_bytes("adamw-8bit-paged", "16bit") == 2 + 8 / 256
    assert quantized_moment_bytes(2, np.array([64, 256, 2048])).tolist() == [2.125, 2.03125, 2.00390625]


def test_adafactor_keeps_almost_nothing():
    assert 0 < state_bytes("adafactor", "mixed") < 0.01
    assert factored_moment_bytes(1, 1) == 8.0


def test_muon_lies_between_one_and_two_moments():
    assert 4 < state_bytes("muon", "mixed") < 8
    assert mean_state_bytes(4.0, 8.0, matrix_share=1.0) == 4.0
    assert mean_state_bytes(4.0, 8.0, matrix_share=0.0) == 8.0


def test_fused_adam_moves_the_published_28_to_34_bytes():
    assert step_traffic(4.0, 4.0, 0.0, 8.0) == 28
    assert step_traffic(2.0, 4.0, 4.0, 8.0) == 30


def test_traffic_falls_with_the_states():
    order = ("adamw", "muon", "lion", "adamw-8bit", "adafactor", "sgd")
    traffic = [relative_traffic(name, "mixed") for name in order]
    assert traffic == sorted(traffic, reverse=True)
    assert traffic[0] == 1.0


def test_sharding_the_parameters_shards_the_step():
    whole, eighth = (optimizer_step_time(n, 30.0, 1.67e12) for n in (8e9, 1e9))
    assert whole == pytest.approx(8 * eighth)
    assert whole == pytest.approx(0.144, rel=0.01)


def test_host_step_of_a_node_is_shared_by_its_ranks():
    # ZeRO-Offload: 1e9 parameters on 8 ranks, 30 bytes each, two sockets of DDR4 at about 150 GB/s together.
    assert host_step_time(1e9 / 8, 30.0, 150e9, ranks=8) == pytest.approx(0.2)


def test_offload_waits_for_the_slower_of_many_bytes_or_a_slow_slot():
    fast, slow = (offload_time(1e9, 2.0, 2.0, bandwidth=b, efficiency=0.8) for b in (63e9, 15.75e9))
    assert slow == pytest.approx(4 * fast)
