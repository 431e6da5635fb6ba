"""Small tables of durations, and steps played from them."""

from planner.simulate.order_text import parse_order
from planner.simulate.schedules import known_order
from planner.simulate.simulation import simulate
from planner.spec.durations import Block, Durations, Segment


def layer(forward=1.0, backward=2.0, weight=0.0, **rest):
    """A block that computes, without a transfer that compute waits for."""
    parts = (Segment("forward", forward),), (Segment("backward", backward),), (Segment("weights", weight),)
    return Block("layer", *parts, **rest)


def played(name, ranks, microbatches, *stages, chunks=None, disturbance=None, **table):
    """A step of a known schedule; `stages` are the blocks of each stage (a block or a tuple), or one for all."""
    order = known_order(name, ranks, microbatches, chunks)
    return played_order(order, *stages, disturbance=disturbance, **table)


def played_order(order, *stages, disturbance=None, **table):
    """A step of any order."""
    blocks = tuple(stage if isinstance(stage, tuple) else (stage,) for stage in stages)
    blocks = blocks * order.num_stages if len(blocks) == 1 else blocks
    durations = Durations(blocks, order.rank_of, order.num_microbatches, "", **table)
    return simulate(durations, order, disturbance)


def order_of(*ranks):
    """An order from each rank's actions, such as "0F0 0F1 0B0 0B1"."""
    return parse_order("\n".join(",".join(actions.split()) for actions in ranks))


def tasks_of(simulation, name="", block=""):
    """Start and end of the tasks whose label has this name and block, in the order of their start."""
    labels = simulation.step.tasks.label
    chosen = [task for task, label in enumerate(labels) if (name or label.name, block or label.block) == label[:2]]
    return sorted((float(simulation.played.start[task]), float(simulation.played.end[task])) for task in chosen)
