"""Timing: repeats until the median is known or time is up, warm calls only, operands that no cache holds."""

from itertools import pairwise
from time import sleep

import pytest
import torch

from calibration.measure.ranks import Ranks, groups
from calibration.measure.timing import Bench, interval, spread

CPU = Ranks(torch.device("cpu"))


def bench(**changed):
    return Bench(CPU, **({"cache": 1e6, "memory": 1e9, "cap": 0.2} | changed))


def scripted(times):
    """A clock that tells what a script says, and the calls that it timed."""
    calls = []

    def clock(operation, count):
        told = [next(times) for _ in range(count)]
        calls.extend(told)
        return told

    return clock, calls


def steady(first, after):
    yield from first
    while True:
        yield after


def test_steady_times_need_few_repeats():
    clock, calls = scripted(steady([], 0.01))
    found = bench().time(lambda: None, clock=clock)
    assert found.value == 0.01
    assert found.spread == 0
    assert 5 <= found.n <= 10
    assert len(calls) > found.n


def test_slow_first_calls_are_not_counted():
    clock, _ = scripted(steady([3.0, 1.0], 0.01))
    assert bench().time(lambda: None, clock=clock).value == 0.01


def test_scattered_times_are_repeated_until_time_is_up():
    def scattered():
        while True:
            yield from (0.001, 0.004, 0.002, 0.009)

    clock, _ = scripted(scattered())
    few = bench(cap=0.0).time(lambda: None, clock=clock)
    many = bench(cap=0.05, precision=0.0).time(lambda: None, clock=clock)
    assert few.n < many.n
    assert many.value == pytest.approx(0.003, rel=0.4)
    assert many.spread > 0.5


def test_the_interval_of_a_median_shrinks_with_repeats():
    few, many = [1.0, 1.1, 0.9, 1.0, 1.2], [1.0, 1.1, 0.9, 1.0, 1.2] * 40
    assert interval(many) < interval(few)
    assert spread([2.0]) == 0


def test_operands_go_round_so_that_no_cache_holds_them():
    one = bench(cache=1e6)
    assert one.copies(1e3) * 1e3 >= 64e3
    assert one.copies(3e5) * 3e5 > 2e6
    assert one.copies(1e9) == 1


def test_random_data_fill_a_tensor_of_any_size():
    values = bench().random(3, 700_001, dtype="bf16")
    assert values.shape == (3, 700_001)
    assert values.dtype == torch.bfloat16
    assert (values != 0).float().mean() > 0.99


def test_a_real_operation_takes_as_long_as_it_takes_at_least():
    one, matrix = bench(cap=0.1), torch.randn(64, 64)
    assert one.time(lambda: sleep(0.02)).value >= 0.02
    assert one.time(lambda: matrix @ matrix).value > 0


@pytest.mark.parametrize(("world", "size", "stride"), [(8, 2, 1), (8, 2, 4), (8, 4, 2), (4, 4, 1), (6, 3, 2)])
def test_groups_cover_every_rank_once(world, size, stride):
    found = groups(world, size, stride)
    assert sorted(rank for members in found for rank in members) == list(range(world))
    assert all(later - earlier == stride for members in found for earlier, later in pairwise(members))
