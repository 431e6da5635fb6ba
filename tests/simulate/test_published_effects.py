"""What is known of pipelines from papers and trainers comes out of the simulation."""

import numpy as np
import pytest

from planner.simulate.simulation import Disturbance
from planner.spec.durations import Block, Segment
from tests.simulate.samples import layer, played

HALF = layer(0.5, 1.0)
"""A chunk, of which two make a stage of `layer()`: forward 1 s, backward 2 s."""


# Interleaving and sends


@pytest.mark.parametrize(("microbatches", "gain"), [(8, 1.304), (32, 1.10)])
def test_interleaving_twice_gains_most_with_as_many_micro_batches_as_ranks(microbatches, gain):
    """Published for Llama 405B on 8 stages, with torchtitan's default of m = p (December 2024): 128 / 100 tokens/s."""
    plain = played("1f1b", 8, microbatches, layer())
    twice = played("interleaved", 8, microbatches, HALF, chunks=2)
    assert plain.makespan / twice.makespan == pytest.approx(gain, rel=0.002)


def test_interleaving_pays_with_more_micro_batches_in_flight():
    """1 + (p-1)/(p v) times p on the first rank: Korthikanti et al. 2022 (arXiv 2205.05198)."""
    plain, twice = played("1f1b", 8, 32, layer()), played("interleaved", 8, 32, HALF, chunks=2)
    assert [step.memory[0].peak_in_flight for step in (plain, twice)] == [8, 8 * (1 + 7 / 16)]


def test_under_1f1b_nearly_every_micro_batch_pays_for_its_sends_and_under_interleaving_none_in_the_steady_state():
    """A send of 5 % of a forward, 64 micro-batches on 8 ranks: 1F1B takes 2.9 % longer, interleaving 0.7 %."""
    plain = [played("1f1b", 8, 64, layer(), send=send).makespan for send in (0, 0.05)]
    twice = [played("interleaved", 8, 64, HALF, send=send).makespan for send in (0, 0.05)]
    assert plain[1] - plain[0] == pytest.approx(2 * 0.05 * (64 * 7 / 8 + 6))
    assert twice[1] - twice[0] == pytest.approx(2 * 0.05 * (2 * 8 - 1))
    more = [played("1f1b", 8, 128, layer(), send=send).makespan for send in (0, 0.05)]
    assert (more[1] - more[0]) / (plain[1] - plain[0]) == pytest.approx(2, rel=0.1)
    more = [played("interleaved", 8, 128, HALF, send=send).makespan for send in (0, 0.05)]
    assert more[1] - more[0] == pytest.approx(twice[1] - twice[0])


# Stages that differ


def average_stage_formula(stages, microbatches):
    """What is usually written: (m + p - 1) times the mean stage."""
    return (microbatches + len(stages) - 1) * np.mean(stages)


@pytest.mark.parametrize("head", [0.2, 0.35, 0.5])
@pytest.mark.parametrize(("ranks", "microbatches"), [(4, 16), (4, 64), (8, 32), (8, 128)])
def test_with_the_head_on_the_last_stage_the_average_stage_formula_is_10_to_28_percent_short(ranks, microbatches, head):
    heavy = 1 + head
    stages = [layer()] * (ranks - 1) + [layer(heavy, 2 * heavy)]
    step = played("1f1b", ranks, microbatches, *stages)
    formula = average_stage_formula([3.0] * (ranks - 1) + [3 * heavy], microbatches)
    assert 0.10 <= 1 - formula / step.makespan <= 0.28
    assert step.makespan == pytest.approx(microbatches * 3 * heavy + 3 * (ranks - 1))


def test_layers_moved_from_the_stage_with_the_head_win_most_of_it_back():
    """32 layers and a head of 2 of them on 4 stages: 9, 9, 8, 6 instead of 8 on each."""
    one = layer(1, 2)
    equal, moved = (
        played("1f1b", 4, 32, *[(one,) * count for count in (*layers[:-1], layers[-1] + 2)]).makespan
        for layers in ((8, 8, 8, 8), (9, 9, 8, 6))
    )
    least = 3 * 34 / 4 * (32 + 3)
    assert equal / least > 1.13
    assert moved / least < 1.06


def test_a_slow_stage_costs_its_excess_less_for_each_stage_behind_it():
    """m t_max + the others, less (t_max - t) for each stage behind."""
    for slow in range(8):
        stages = [layer(1.25, 2.5) if rank == slow else layer() for rank in range(8)]
        step = played("1f1b", 8, 32, *stages)
        assert step.makespan == 32 * 3.75 + 7 * 3 - 0.75 * (7 - slow)


@pytest.mark.parametrize("slow", range(4))
def test_a_rank_that_is_20_percent_slow_slows_a_long_step_by_20_percent_wherever_it_is(slow):
    usual = played("1f1b", 4, 256, layer()).makespan
    step = played("1f1b", 4, 256, layer(), disturbance=Disturbance({slow: 1.2}))
    assert 1.19 < step.makespan / usual < 1.2
    assert all(use.idle > 0.15 * step.makespan for rank, use in enumerate(step.ranks) if rank != slow)


def test_a_second_slow_rank_costs_next_to_nothing_more():
    one = played("1f1b", 4, 256, layer(), disturbance=Disturbance({1: 1.2})).makespan
    assert played("1f1b", 4, 256, layer(), disturbance=Disturbance({1: 1.2, 3: 1.2})).makespan / one < 1.005


def test_a_mixed_pool_goes_at_the_pace_of_its_slow_half_unless_layers_are_dealt_by_speed():
    """Two ranks that need 2.5 times as long as the other two for a layer; 28 layers."""
    slow = Disturbance({2: 2.5, 3: 2.5})
    equal, by_speed = (
        played("1f1b", 4, 64, *[(layer(),) * count for count in layers], disturbance=slow)
        for layers in ((7, 7, 7, 7), (10, 10, 4, 4))
    )
    assert equal.makespan == pytest.approx(64 * 7 * 3 * 2.5, rel=0.05)
    assert by_speed.makespan == (64 + 3) * 30
    assert equal.ranks[0].idle > equal.makespan / 2


# Zero bubble


def test_zb_h1_leaves_a_third_of_the_bubble_and_zb_v_a_sixth_where_the_parts_are_equal():
    """Qi et al. 2024 (arXiv 2401.10241): (p-1)(F+B-W) against (p-1)(F+B+W); no rank of ZB-V waits once it started."""
    work, ranks, microbatches = 6, 8, 32
    bubbles = {
        name: played(name, ranks, microbatches, layer(*parts)).makespan - microbatches * work
        for name, parts in {"1f1b": (2, 2, 2), "zb-h1": (2, 2, 2), "zb-v": (1, 1, 1)}.items()
    }
    assert bubbles == {"1f1b": 7 * 6, "zb-h1": 7 * 2, "zb-v": 7 * 1}


def test_zb_v_holds_no_more_than_the_first_rank_of_1f1b():
    step = played("zb-v", 8, 32, layer(1, 1, 1))
    assert [timeline.peak_in_flight for timeline in step.memory] == [8] * 8


def test_zero_bubble_gains_less_where_weight_gradients_are_short():
    gains = []
    for weights in (0.25, 0.5, 1):
        one, zero = (played(name, 8, 16, layer(1, 1, weights)).makespan for name in ("1f1b", "zb-h1"))
        gains.append(one - zero)
    assert gains == [7 * 2 * 0.25, 7 * 2 * 0.5, 7 * 2 * 1]


# Exchange of experts


def layer_with_experts(exchange):
    """Attention and experts with an all-to-all to them and one back, each a transfer that compute waits for."""
    to, back = (Segment(name, transfer=exchange, axis="ep") for name in ("dispatch", "combine"))
    forward = (Segment("attention", 1.0), to, Segment("experts", 1.0), back)
    backward = (back, Segment("experts", 1.0), to, Segment("attention", 1.0))
    return Block("layer", forward, backward, (Segment("weights", 2.0),))


def with_experts(name, exchange):
    """16 micro-batches on 4 ranks with 4 layers each."""
    stage = (layer_with_experts(exchange),) * (4 if name == "1f1b" else 2)
    return played(name, 4, 16, stage)


@pytest.mark.parametrize("exchange", [0.25, 0.5, 1.0])
def test_dualpipe_v_hides_more_than_half_of_the_exchange_of_experts_behind_the_paired_pass(exchange):
    """DeepSeek-AI 2024 (arXiv 2412.19437), section 3.2.1."""
    paired, alone = with_experts("dualpipe-v", exchange), with_experts("zb-v", exchange)
    assert [use.exposed for use in alone.ranks] == [16 * 4 * 4 * exchange] * 4
    assert all(use.exposed < 0.45 * 16 * 4 * 4 * exchange for use in paired.ranks)
    assert paired.makespan < 0.94 * alone.makespan < alone.makespan < with_experts("1f1b", exchange).makespan


def test_without_an_exchange_pairs_gain_nothing():
    assert with_experts("dualpipe-v", 0.0).makespan > with_experts("zb-v", 0.0).makespan


# Jitter


def excess(ranks, jitter):
    """What jitter adds to a step of 16 micro-batches, mean of 20 seeds."""
    steps = (played("1f1b", ranks, 16, layer(), disturbance=Disturbance({}, jitter, seed)) for seed in range(20))
    return np.mean([step.makespan for step in steps]) - (16 + ranks - 1) * 3


def test_the_mean_step_grows_with_jitter():
    grown = [excess(4, jitter) for jitter in (0.0, 0.05, 0.1, 0.2)]
    assert grown[0] == 0
    assert grown == sorted(set(grown))


def test_jitter_costs_more_the_more_ranks_wait_for_each_other():
    """A rank alone waits for none, and its own passes vary around their mean."""
    grown = [excess(ranks, 0.1) for ranks in (1, 2, 4, 8)]
    assert grown == sorted(set(grown))
    assert abs(grown[0]) < 0.01 * 48


def test_the_same_seed_gives_the_same_times_bit_by_bit_and_another_seed_others():
    first, again, other = (
        played("zb-v", 4, 8, layer(), send=0.1, disturbance=Disturbance({1: 1.3}, 0.1, seed)).played
        for seed in (7, 7, 8)
    )
    assert first.start.tobytes() == again.start.tobytes()
    assert first.end.tobytes() == again.end.tobytes()
    assert first.end.tobytes() != other.end.tobytes()


def test_jitter_varies_compute_and_leaves_transfers_as_they_are():
    step = played("1f1b", 2, 4, layer(gather=0.5), send=0.25, disturbance=Disturbance({}, 0.3, 1))
    tasks = step.step.tasks
    varied = {stream: set() for stream in tasks.stream}
    for stream, seconds in zip(tasks.stream, tasks.seconds, strict=True):
        varied[stream].add(seconds)
    assert varied["gather"] == {0.5}
    assert varied["send forward"] == {0.25}
    assert len(varied["compute"]) > 10
