"""A simulated step taken apart: what it gets shorter by when one kind of work after the other is left out."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace

from planner.quantities import Seconds
from planner.simulate.actions import Order
from planner.simulate.simulation import Simulation, simulate
from planner.spec.durations import Block, Durations, Segment

Segments = tuple[Segment, ...]


def step_terms(played: Simulation) -> dict[str, Seconds]:
    """Seconds of a step by term, which add up to its makespan; of a simulation that nothing disturbs.

    The term of a kind of transfers is what the step gets shorter by without it, those of the terms before left out
    already; the compute terms are those of the rank with the most of them, and `bubble` is what remains.
    """
    table, order = played.durations, played.order
    # All ranks start the optimizer at once, so that this much is no part of what overlaps.
    terms = {"fixed": float(table.fixed), "optimizer": max(table.optimizer, default=0.0)}
    makespan = played.makespan - sum(terms.values())
    left = _merged(replace(table, fixed=0.0, optimizer=(), optimizer_bytes=()))
    for name, without in WITHOUT.items():
        left = without(left)
        shorter = simulate(left, order).makespan
        terms[name], makespan = makespan - shorter, shorter
    by_rank = [_compute(left, order, rank) for rank in range(order.num_ranks)]
    slowest = max(by_rank, key=lambda each: sum(each.values()))
    terms["bubble"] = makespan - sum(slowest.values())
    return {name: terms.get(name, 0.0) + slowest.get(name, 0.0) for name in {**terms, **slowest}}


def _compute(table: Durations, order: Order, rank: int) -> dict[str, Seconds]:
    """What a rank computes in a step, by the segments' names."""
    found: dict[str, Seconds] = defaultdict(float)
    for stage, owner in enumerate(order.rank_of):
        for block in table.stages[stage] if owner == rank else ():
            for segment in (*block.forward, *block.backward, *block.weight):
                found[segment.name] += segment.compute * order.num_microbatches
    return {name: seconds for name, seconds in found.items() if seconds}


def _merged(table: Durations) -> Durations:
    """The table without data-parallel transfers, equal blocks of a stage made one: as long, and sooner simulated."""
    return replace(table, stages=tuple(_merged_stage(stage) for stage in table.stages))


def _merged_stage(stage: tuple[Block, ...]) -> tuple[Block, ...]:
    counts = Counter((block.name, block.forward, block.backward, block.weight) for block in stage)
    return tuple(
        Block(name, _times(forward, count), _times(backward, count), _times(weight, count))
        for (name, forward, backward, weight), count in counts.items()
    )


def _times(segments: Segments, count: int) -> Segments:
    return tuple(replace(each, compute=each.compute * count, transfer=each.transfer * count) for each in segments)


def _without_axis(axis: str) -> Callable[[Durations], Durations]:
    def quiet(segments: Segments) -> Segments:
        return tuple(replace(each, transfer=0.0) if each.axis == axis else each for each in segments)

    def changed(block: Block) -> Block:
        return Block(block.name, quiet(block.forward), quiet(block.backward), quiet(block.weight))

    return lambda table: replace(table, stages=tuple(tuple(map(changed, stage)) for stage in table.stages))


WITHOUT: Mapping[str, Callable[[Durations], Durations]] = {
    "dp_exposed": lambda table: table,
    "pp_exposed": lambda table: replace(table, send=0.0),
    "ep_exposed": _without_axis("ep"),
    "cp_exposed": _without_axis("cp"),
    "head": _without_axis("head"),
    "tp_exposed": _without_axis("tp"),
}
"""What is left out, one after the other, by the names of the step time's terms."""
