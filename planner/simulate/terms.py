"""A simulated step taken apart: what it gets shorter by when one kind of work after the other is left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from planner.quantities import Seconds
from planner.simulate.actions import Order
from planner.simulate.simulation import simulate
from planner.spec.durations import Block, Durations, Segment


def step_terms(table: Durations, order: Order) -> dict[str, Seconds]:
    """Seconds of a step by term, which add up to its makespan.

    Each transfer's term is what the step gets shorter by without it, those of the terms before left out already; the
    compute terms are those of the rank with the most of them, and `bubble` is what remains.
    """
    terms: dict[str, Seconds] = {}
    left, makespan = table, simulate(table, order).makespan
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
    found: dict[str, Seconds] = {}
    for stage, owner in enumerate(order.rank_of):
        for block in table.stages[stage] if owner == rank else ():
            for segment in (*block.forward, *block.backward, *block.weight):
                found[segment.name] = found.get(segment.name, 0.0) + segment.compute * order.num_microbatches
    return {name: seconds for name, seconds in found.items() if seconds}


def _each_block(change: Callable[[Block], Block]) -> Callable[[Durations], Durations]:
    def changed(table: Durations) -> Durations:
        return replace(table, stages=tuple(tuple(change(block) for block in stage) for stage in table.stages))

    return changed


def _without_data_parallel(block: Block) -> Block:
    return replace(block, gather=0.0, gather_again=0.0, reduce=0.0, gather_once=0.0, reduce_once=0.0)


def _without_axis(axis: str) -> Callable[[Block], Block]:
    def quiet(segments: tuple[Segment, ...]) -> tuple[Segment, ...]:
        return tuple(replace(each, transfer=0.0) if each.axis == axis else each for each in segments)

    def changed(block: Block) -> Block:
        return replace(block, forward=quiet(block.forward), backward=quiet(block.backward), weight=quiet(block.weight))

    return changed


WITHOUT: Mapping[str, Callable[[Durations], Durations]] = {
    "fixed": lambda table: replace(table, fixed=0.0),
    "optimizer": lambda table: replace(table, optimizer=()),
    "dp_exposed": _each_block(_without_data_parallel),
    "pp_exposed": lambda table: replace(table, send=0.0),
    "ep_exposed": _each_block(_without_axis("ep")),
    "cp_exposed": _each_block(_without_axis("cp")),
    "head": _each_block(_without_axis("head")),
    "tp_exposed": _each_block(_without_axis("tp")),
}
"""What is left out, one after the other, by the names of the step time's terms."""
