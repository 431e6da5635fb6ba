"""Overlap of communication and compute."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.cost.overlap import exposed_time, needed_bandwidth, overlapped_time

times = st.floats(0.0, 1e3)
penalties = st.floats(0.0, 1.0)


def test_overlap_hides_all_but_the_penalty_of_the_shorter():
    assert overlapped_time(10e-3, 4e-3, penalty=0.45) == pytest.approx(11.8e-3)
    assert overlapped_time(4e-3, 10e-3, penalty=0.45) == pytest.approx(11.8e-3)


def test_without_penalty_the_longer_counts_and_with_full_penalty_both():
    assert overlapped_time(10e-3, 4e-3, penalty=0.0) == 10e-3
    assert overlapped_time(10e-3, 4e-3, penalty=1.0) == 14e-3


@given(compute=times, penalty=penalties)
def test_no_communication_exposes_nothing(compute, penalty):
    assert exposed_time(compute, 0.0, penalty=penalty) == 0


@given(communication=times, penalty=penalties)
def test_communication_without_compute_is_exposed_whole(communication, penalty):
    assert exposed_time(0.0, communication, penalty=penalty) == communication


@given(compute=times, communication=times, penalty=penalties)
def test_exposed_time_lies_between_nothing_and_the_communication(compute, communication, penalty):
    exposed = exposed_time(compute, communication, penalty=penalty)
    assert 0 <= exposed <= communication * (1 + 1e-12)
    assert exposed >= communication - compute
    assert overlapped_time(compute, communication, penalty=penalty) == compute + exposed


@given(compute=times, communication=times, more=times, penalty=penalties)
def test_overlapped_time_grows_with_both_parts(compute, communication, more, penalty):
    time = overlapped_time(compute, communication, penalty=penalty) * (1 - 1e-12)
    assert overlapped_time(compute + more, communication, penalty=penalty) >= time
    assert overlapped_time(compute, communication + more, penalty=penalty) >= time


def test_needed_bandwidth_makes_the_transfer_as_long_as_the_compute():
    """A layer of Llama-3-70B (0.86 G parameters in 16 bits) gathered while 30 ms of it are computed."""
    size = 2 * 0.86e9
    bandwidth = needed_bandwidth(size, 30e-3)
    assert bandwidth == pytest.approx(57.3e9, rel=1e-3)
    assert exposed_time(30e-3, size / bandwidth, penalty=0.0) == pytest.approx(0.0, abs=1e-15)
