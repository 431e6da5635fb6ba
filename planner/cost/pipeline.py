"""Pipeline schedules in closed form: duration, waiting, sends on the critical path, micro-batches in flight.

p stages, m micro-batches per step, v chunks of layers per rank. Times are those of one micro-batch; `slowest` is the
stage that takes longest (forward and backward), `others` the sum over the remaining stages. Ranks count from 0. The
source of every form is counting along the critical path; an event simulation of the orders in question agrees
exactly wherever the docstring says that the form holds (p 1 to 8, m 1 to 32, v 1 to 4).
"""

from __future__ import annotations

import numpy as np

from planner.quantities import Count, Scalar, Seconds


def gpipe_time(num_microbatches: Count, *, slowest: Seconds, others: Seconds) -> Seconds:
    """Duration of all forwards, then all backwards; equal to (m+p-1) t with equal stages.

    T = m slowest + others

    Source: Huang et al. 2019 (GPipe, arXiv 1811.06965), section 2.3. Exact for any m and any unequal stages, if one
    stage is the slowest both forward and backward.

    >>> gpipe_time(8, slowest=3.0, others=9.0)
    33.0
    """
    return num_microbatches * slowest + others


def one_f_one_b_time(num_microbatches: Count, *, slowest: Seconds, others: Seconds) -> Seconds:
    """Duration of one forward, one backward (1F1B); equal to (m+p-1) t with equal stages.

    T = m slowest + others

    Source: Narayanan et al. 2021 (arXiv 2104.04473), section 2.2. Exact for any m with equal stages and where the
    last stage is the slowest; an upper bound otherwise (`one_f_one_b_time_saved` says how much less).

    >>> one_f_one_b_time(8, slowest=3.0, others=9.0)
    33.0
    """
    return num_microbatches * slowest + others


def one_f_one_b_time_saved(
    num_microbatches: Count,
    *,
    stages_behind: Count,
    slowest_forward: Seconds,
    slowest_backward: Seconds,
    other: Seconds,
) -> Seconds:
    """What 1F1B takes less than `one_f_one_b_time` where stages of time `other` follow the slowest one.

    S = min(stages_behind, m-1) (min(other, slowest_forward) + min(other, slowest_backward) - other)

    A stage behind does its forward and backward while the slow one before it does its next forward, so that fill and
    drain are partly hidden; stages before it save nothing. Source: own derivation. Exact where every stage takes
    either the slowest's times or `other` (split alike), `stages_behind` counts from the last slow one, and m is at
    least p or one stage alone is slow; with three or more different times off by some percent either way.

    >>> float(one_f_one_b_time_saved(8, stages_behind=3, slowest_forward=2.0, slowest_backward=4.0, other=5.0))
    3.0
    """
    hidden = np.minimum(other, slowest_forward) + np.minimum(other, slowest_backward) - other
    return np.minimum(stages_behind, num_microbatches - 1) * hidden


def interleaved_time(num_microbatches: Count, *, slowest: Seconds, others: Seconds, virtual_stages: Count) -> Seconds:
    """Duration of interleaved 1F1B; equal to (m + (p-1)/v) t with equal stages.

    T = m slowest + others / v

    Stage times are a rank's, over all of its chunks. Source: Narayanan et al. 2021 (arXiv 2104.04473), section 2.2.
    Exact for m a multiple of p, with equal stages and where the last rank is the slowest (all its chunks or the last
    one alone, as with the output head); where an earlier rank is, too long by at most a chunk of each rank behind it.

    >>> interleaved_time(8, slowest=3.0, others=9.0, virtual_stages=3)
    27.0
    """
    return num_microbatches * slowest + others / virtual_stages


def zb_h1_time(
    num_microbatches: Count,
    stages: Count,
    *,
    forward: Seconds,
    backward_input: Seconds,
    backward_weight: Seconds,
) -> Seconds:
    """Duration of the zero-bubble schedule H1 on equal stages, without an optimizer step that crosses stages.

    T = m (F+B+W) + (p-1) (F+B) - min(p-1, m-1) min(F, B, W)

    H1 runs the weight gradients W late, where 1F1B would wait. Source: Qi et al. 2024 (arXiv 2401.10241), whose
    bubble (p-1) (F+B-W) is the case W <= min(F, B), m >= p; the minima are own derivation: a bubble cannot take in
    more than its length, nor, with p micro-batches in flight, more than the fill leaves. Exact for any m, F, B, W.

    >>> float(zb_h1_time(8, 4, forward=1.0, backward_input=1.0, backward_weight=1.0))
    27.0
    """
    work = num_microbatches * (forward + backward_input + backward_weight)
    filled = np.minimum(forward, np.minimum(backward_input, backward_weight))
    return work + (stages - 1) * (forward + backward_input) - np.minimum(stages - 1, num_microbatches - 1) * filled


def bubble_fraction(time: Seconds, *, busy: Seconds) -> Scalar:
    """Share of a schedule's duration in which a stage with `busy` seconds of work per step waits.

    f = 1 - busy / time

    (p-1)/(m+p-1) for GPipe and 1F1B with equal stages. Source: definition.

    >>> bubble_fraction(gpipe_time(8, slowest=3.0, others=24.0), busy=8 * 3.0)
    0.5
    """
    return 1 - busy / time


def gpipe_send_exposed(stages: Count, *, send: Seconds) -> Seconds:
    """What sends between stages add to GPipe, each of them `send` long and none holding up compute.

    T = 2 send (p-1)

    One pass forward and one back; later sends run beside compute. Source: own derivation. Exact for equal stages and
    any m. 0 with one stage.

    >>> gpipe_send_exposed(4, send=1.0)
    6.0
    """
    return 2 * send * (stages - 1)


def one_f_one_b_send_exposed(num_microbatches: Count, stages: Count, *, send: Seconds) -> Seconds:
    """What sends between stages add to 1F1B, each of them `send` long and none holding up compute.

    T = 2 send (m (p-1)/p + p-2)

    In 1F1B a stage waits for its neighbour's answer, so nearly every micro-batch pays. Source: own derivation. Exact
    for equal stages and m a multiple of p; else off by 2 sends at most. 0 with one stage.

    >>> float(one_f_one_b_send_exposed(8, 4, send=1.0))
    16.0
    """
    return 2 * send * (num_microbatches * (stages - 1) / stages + np.maximum(stages - 2, 0))


def interleaved_send_exposed(stages: Count, virtual_stages: Count, *, send: Seconds) -> Seconds:
    """What sends between stages add to interleaved 1F1B, each of them `send` long and none holding up compute.

    T = 2 send (p v - 1)

    The longer warm-up hides all sends but those of fill and drain. Source: own derivation. Exact for equal stages
    while a send takes no longer than a chunk's forward nor its backward, m a multiple of p. 0 with one stage.

    >>> float(interleaved_send_exposed(4, 2, send=1.0))
    14.0
    """
    return 2 * send * (stages * virtual_stages - 1) * (stages > 1)


def zb_h1_send_exposed(num_microbatches: Count, stages: Count, *, send: Seconds) -> Seconds:
    """What sends between stages add to ZB-H1, each of them `send` long and none holding up compute.

    T = 2 send (p-1 + min(max(m-2, 0), p-1))

    Weight gradients fill the waits that each micro-batch of 1F1B pays. Source: own derivation. Exact for equal stages
    while W <= min(F, B) and two sends take no longer than W; an upper bound for longer W. 0 with one stage.

    >>> float(zb_h1_send_exposed(8, 4, send=1.0))
    12.0
    """
    steady = np.minimum(np.maximum(num_microbatches - 2, 0), stages - 1)
    return 2 * send * (stages - 1 + steady)


def send_bound_exposed(sends: Count, *, send: Seconds, makespan: Seconds) -> Seconds:
    """What a link between stages needs beyond the step, where it carries so many sends of one direction in a row.

    T = max(sends send - makespan, 0)

    The forms above are latencies on the critical path; this is throughput, a lower bound whatever the schedule: a link
    cannot send the next tensor before it has sent the last. Source: definition.

    >>> float(send_bound_exposed(64, send=0.25, makespan=5.0)), float(send_bound_exposed(64, send=0.01, makespan=5.0))
    (11.0, 0.0)
    """
    return np.maximum(sends * send - makespan, 0.0)


def gpipe_in_flight(num_microbatches: Count) -> Count:
    """Micro-batches whose activations a rank holds at the peak under GPipe: all of them.

    N = m

    Source: Huang et al. 2019 (arXiv 1811.06965). Holds for every rank.

    >>> gpipe_in_flight(8)
    8
    """
    return num_microbatches


def one_f_one_b_in_flight(num_microbatches: Count, stages: Count, rank: Count) -> Count:
    """Micro-batches whose activations a rank holds at the peak under 1F1B.

    N = min(p - rank, m)

    Source: Narayanan et al. 2021 (arXiv 2104.04473), section 2.2. Holds for any m.

    >>> int(one_f_one_b_in_flight(8, 4, 0)), int(one_f_one_b_in_flight(8, 4, 3))
    (4, 1)
    """
    return np.minimum(stages - rank, num_microbatches)


def interleaved_in_flight(num_microbatches: Count, stages: Count, rank: Count, virtual_stages: Count) -> Scalar:
    """Activations that a rank holds at the peak under interleaved 1F1B, in micro-batches of its whole stage.

    N = min(2 (p-rank-1) + (v-1) p + 1, m v) / v

    The numerator counts chunks: those of warm-up, and one. Source: Megatron-LM core/pipeline_parallel/schedules.py;
    1 + (p-1)/(p v) times p on rank 0 as in Korthikanti et al. 2022 (arXiv 2205.05198). Holds for m a multiple of p.

    >>> float(interleaved_in_flight(8, 4, 0, 2))
    5.5
    """
    chunks = 2 * (stages - rank - 1) + (virtual_stages - 1) * stages + 1
    return np.minimum(chunks, num_microbatches * virtual_stages) / virtual_stages


def zb_h1_in_flight(num_microbatches: Count, stages: Count) -> Count:
    """Micro-batches that a rank holds at the peak under ZB-H1, from forward until their weight gradient is done.

    N = min(p, m)

    The same on all ranks: late weight gradients fill the room that 1F1B leaves on later ranks. Source: Qi et al. 2024
    (arXiv 2401.10241). Holds for any m.

    >>> int(zb_h1_in_flight(8, 4))
    4
    """
    return np.minimum(stages, num_microbatches)
