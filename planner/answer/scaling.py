"""How far a job scales on a node type: speed, efficiency and communication at each size, for several networks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from planner.answer.choices import Choices
from planner.answer.crossover import Crossover, PlanOf, crossover
from planner.answer.question import Question, ask
from planner.answer.ranked_plan import RankedPlan
from planner.answer.recommend import best_plan, feasible_plans
from planner.answer.repeated import repeated
from planner.catalogue.hardware import network, node, standard_node
from planner.catalogue.names import slug_of
from planner.errors import NoFeasiblePlan, SpecError
from planner.quantities import counted
from planner.search.fastest import Feasible
from planner.spec.batch import read_batch_size, usual_batch_size
from planner.spec.cluster import Node
from planner.spec.codec import plan_to_plain

SCHEMA_VERSION = 1
USUAL_SIZES = "8..16384"
LARGEST_SIZE = 16384
"""GPUs whose usual batch is the largest that is tried for a crossover, unless the user names the most."""
PAYS = 1.5
"""A doubling of the GPUs pays where it makes the job at least so much faster: half of the speed that is paid for."""


@dataclass(frozen=True, eq=False)
class ScalePoint:
    """One size on one network: its best plan (None where nothing fits), and the plan that it is compared with."""

    gpus: int
    global_batch_size: int
    ranked: RankedPlan | None
    reference: RankedPlan

    @property
    def efficiency(self) -> float:
        """Tokens/s per GPU over those of the reference; 0 where nothing fits."""
        each = float(self.ranked.speed.tokens_per_s_per_gpu) if self.ranked else 0.0
        return each / float(self.reference.speed.tokens_per_s_per_gpu)

    @property
    def exposed(self) -> float:
        """Share of the step in which communication is waited for."""
        if self.ranked is None:
            return 0.0
        time = self.ranked.time
        waits = (getattr(time, field.name) for field in fields(time) if field.name.endswith("_exposed"))
        return float(sum(waits)) / float(time.total)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        both = {"gpus": self.gpus, "global_batch_size": self.global_batch_size}
        if self.ranked is None:
            return {**both, "name": None, "plan": None, "efficiency": None, "exposed_communication_share": None}
        return {
            **both,
            "name": self.ranked.name,
            "plan": plan_to_plain(self.ranked.plan),
            "efficiency": self.efficiency,
            "exposed_communication_share": self.exposed,
            **self.ranked.prediction(),
            "command": self.ranked.question.command(),
        }


@dataclass(frozen=True, eq=False)
class NetworkScaling:
    """All sizes on one network. `pays` is the largest size up to which every doubling pays, 0 where none does."""

    network: str
    points: tuple[ScalePoint, ...]
    crossover: Crossover | None

    @property
    def pays(self) -> int:
        """GPUs up to which each doubling made the job at least `PAYS` times as fast."""
        fit = [point for point in self.points if point.ranked]
        for smaller, larger in pairwise(fit):
            if _speed(larger) < PAYS * _speed(smaller):
                return smaller.gpus
        return fit[-1].gpus if fit else 0

    @property
    def crossover_words(self) -> str:
        """From how many tokens per GPU and step more nodes are worth it, in words."""
        if self.crossover is None:
            return "no comparison with one node: nothing fits"
        return self.crossover.words(self.network)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "network": self.network,
            "pays_up_to_gpus": self.pays,
            "crossover": self.crossover and self.crossover.as_dict(),
            "points": [point.as_dict() for point in self.points],
        }


@dataclass(frozen=True, eq=False)
class Scaling:
    """The answer: every network over the same sizes.

    `reference` is the best plan of one node, or of the fewest that fit; `batch_words` say how the batch goes with size.
    """

    model: str
    node: str
    choices: Choices
    sizes: str
    weak: bool
    max_global_batch_size: str | None
    batch_words: str
    reference: RankedPlan
    networks: tuple[NetworkScaling, ...]

    @property
    def reference_words(self) -> str:
        """What efficiency is against."""
        gpus = self.reference.question.cluster.world_size
        nodes = counted(self.reference.question.cluster.num_nodes, "node")
        return f"one node of {counted(gpus, 'GPU')}" if nodes == "1 node" else f"{nodes} ({counted(gpus, 'GPU')})"

    @property
    def sentence(self) -> str:
        """The answer in one sentence."""
        return (
            f"{self.reference.question.model.name} on {self.node} nodes, {self.batch_words}: "
            f"{'; '.join(_far(each) for each in self.networks)} (efficiency against {self.reference_words})."
        )

    @property
    def questions(self) -> tuple[Question, ...]:
        """The questions behind the largest size of each network."""
        found = ([p.ranked for p in each.points if p.ranked] for each in self.networks)
        return tuple(plans[-1].question for plans in found if plans)

    @property
    def command(self) -> str:
        """The whole question as one command line."""
        own = {"gpus": self.sizes, "weak" if self.weak else "strong": True}
        most = {"max_global_batch_size": self.max_global_batch_size}
        return repeated("scale", (self.model, self.node), self.choices, **own, **most)

    def as_dict(self) -> dict[str, Any]:
        """The JSON of `planner scale --json`."""
        asked = self.reference.question
        return {
            "schema_version": SCHEMA_VERSION,
            "command": self.command,
            "model": asked.as_dict()["model"],
            "node": self.node,
            "scaling": "weak" if self.weak else "strong",
            "batch": self.batch_words,
            "reference": {
                "gpus": asked.cluster.world_size,
                "global_batch_size": asked.workload.global_batch_size,
                "tokens_per_s_per_gpu": float(self.reference.speed.tokens_per_s_per_gpu),
                "network": asked.cluster.node.fabric.name,
            },
            "networks": [each.as_dict() for each in self.networks],
        }


def scaling(
    model: str | Path,
    node_type: str,
    choices: Choices | None = None,
    *,
    sizes: str = USUAL_SIZES,
    weak: bool = False,
    max_global_batch_size: str | None = None,
) -> Scaling:
    """The best plan at each size from `sizes` ("8..16384"), doubled from one node of a type, on each network.

    `choices.network` may name several, with commas. Strong scaling keeps the batch, weak scaling lets it grow with the
    GPUs from one node's up to `max_global_batch_size`. Raises SpecError for what cannot be asked, NoFeasiblePlan where
    nothing fits at any size.
    """
    chosen = choices or Choices()
    machine = _node(node_type)
    networks = tuple(dict.fromkeys(_names(chosen.network)))
    counts = _counts(sizes, machine)
    least = ask(model, f"1x{machine.name}", replace(chosen, network=networks[0]))
    batch = _Batch.of(least, counts[-1], weak=weak, most=max_global_batch_size)
    runs = _Runs(str(model), machine, chosen, networks)
    reference = runs.reference(batch, counts[-1])
    points = {
        (count, name): ScalePoint(count, batch.at(count), runs.plan(count, name, batch.at(count)), reference)
        for count in counts
        for name in networks
    }
    found = tuple(
        NetworkScaling(
            name or machine.fabric.name,
            tuple(points[count, name] for count in counts),
            crossover(runs.on(name), reference, batch.largest),
        )
        for name in networks
    )
    if not any(point.ranked for each in found for point in each.points):
        raise NoFeasiblePlan(f"{least.model.name} fits on no size of {sizes} GPUs")
    return Scaling(str(model), machine.name, chosen, sizes, weak, max_global_batch_size, batch.words, reference, found)


@dataclass(frozen=True)
class _Batch:
    """How the global batch goes with the GPUs, in sequences: from `first` on `gpus` of them up to `most`.

    `largest` is the largest that is tried for a crossover.
    """

    first: int
    gpus: int
    most: int
    largest: int
    weak: bool
    words: str

    @classmethod
    def of(cls, least: Question, largest: int, *, weak: bool, most: str | None) -> _Batch:
        """From the question on one node. Raises SpecError where the batch is larger than the most that is allowed."""
        job, gpus, given = least.workload, least.cluster.world_size, least.choices.global_batch_size
        usual = usual_batch_size(job.seq_len, largest)
        if most is None:
            limit = max(usual, job.global_batch_size if given else 0)
        else:
            limit = read_batch_size(most, seq_len=job.seq_len, world_size=largest, where="--max-global-batch-size")
        first = job.global_batch_size
        if not weak:
            first = min(usual, limit) if given is None else _read(given, job.seq_len, largest)
        elif given is None:
            first = min(first, limit)
        if first > limit:
            raise SpecError(
                f"must be at least the batch of {first:,} sequences, not {limit:,}", where="--max-global-batch-size"
            )
        tokens = f"{first:,} sequences = {first * job.seq_len:,} tokens a step"
        assumed = "" if given else ", assumed"
        grown = f"{limit:,} sequences ({'given' if most else 'assumed: --max-global-batch-size changes it'})"
        words = (
            f"weak scaling from {tokens} on {counted(gpus, 'GPU')}{assumed} up to {grown}"
            if weak
            else f"strong scaling at {tokens}{assumed}"
        )
        largest = limit if most else max(limit, usual_batch_size(job.seq_len, LARGEST_SIZE))
        return cls(first, gpus, limit, largest, weak, words)

    def at(self, count: int) -> int:
        """Sequences per step on so many GPUs."""
        return min(self.first * count // self.gpus, self.most) if self.weak else self.first


class _Runs:
    """The best plans of one node type by size, network and batch, each found once."""

    def __init__(self, model: str, machine: Node, choices: Choices, networks: Sequence[str | None]) -> None:
        self.model, self.machine, self.choices, self.networks = model, machine, choices, networks
        self.found: dict[tuple[int, str | None, int], RankedPlan | NoFeasiblePlan] = {}
        self.last: Feasible | None = None

    def plan(self, count: int, name: str | None, batch: int) -> RankedPlan | None:
        """The best plan, None where nothing fits. On one node all networks are alike."""
        nodes = count // self.machine.gpus_per_node
        key = (nodes, self.networks[0] if nodes == 1 else name, batch)
        if key not in self.found:
            choices = replace(self.choices, network=key[1], global_batch_size=batch)
            try:
                self.found[key] = self._best(ask(self.model, f"{nodes}x{self.machine.name}", choices))
            except NoFeasiblePlan as error:
                self.found[key] = error
        found = self.found[key]
        return None if isinstance(found, NoFeasiblePlan) else found

    def on(self, name: str | None) -> PlanOf:
        """The best plans on one network."""
        return lambda count, batch: self.plan(count, name, batch)

    def _best(self, question: Question) -> RankedPlan:
        """The best plan of a question; networks that follow one another share what does not depend on them."""
        last, cluster, batch = self.last, question.cluster, question.workload.global_batch_size
        if last is None or (last.case.cluster.num_nodes, last.case.workload.global_batch_size) != (
            cluster.num_nodes,
            batch,
        ):
            last = None
        self.last = last if last and last.serves(cluster) else feasible_plans(question)
        return best_plan(question, self.last)

    def reference(self, batch: _Batch, largest: int) -> RankedPlan:
        """The best plan of the least size, doubled from one node, at which anything fits; the fastest network's.

        Raises the NoFeasiblePlan of the largest size where nothing fits.
        """
        count = self.machine.gpus_per_node
        while count <= largest:
            plans = [self.plan(count, name, batch.at(count)) for name in self.networks]
            fit = [ranked for ranked in plans if ranked]
            if fit:
                return max(fit, key=lambda ranked: float(ranked.speed.tokens_per_s))
            count *= 2
        raise next(error for error in reversed(self.found.values()) if isinstance(error, NoFeasiblePlan))


def _node(name: str) -> Node:
    """A node type, or the standard node of an accelerator. Raises SpecError for a name that is neither."""
    with suppress(SpecError):
        standard = standard_node(name)
        if standard and slug_of("nodes", name) is None:
            return node(standard)
    return node(name, where="NODETYPE")


def _names(text: str | None) -> list[str | None]:
    """Networks by name, None for the node's own where none is named. Raises SpecError for unknown ones."""
    if text is None:
        return [None]
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise SpecError("names no network", where="--network")
    for name in names:
        network(name, where="--network")
    return list(names)


def _counts(text: str, machine: Node) -> list[int]:
    """Sizes within a range that are one node doubled some times. Raises SpecError where there is none."""
    found = re.fullmatch(r"\s*(\d{1,7})\s*(?:\.\.\s*(\d{1,7})\s*)?", text)
    if not found:
        raise SpecError(f"write a number of GPUs or a range such as {USUAL_SIZES}, not {text!r}", where="--gpus")
    first, last = int(found[1]), int(found[2] or found[1])
    counts = list(_doubled(machine.gpus_per_node, first, last))
    if not counts:
        raise SpecError(
            f"no size in {text}: sizes are one {machine.name} node of {machine.gpus_per_node} GPUs, doubled",
            where="--gpus",
        )
    return counts


def _doubled(size: int, first: int, last: int) -> Iterator[int]:
    while size <= last:
        if size >= first:
            yield size
        size *= 2


def _read(given: str | int, seq_len: int, world_size: int) -> int:
    return read_batch_size(str(given), seq_len=seq_len, world_size=world_size)


def _speed(point: ScalePoint) -> float:
    return float(point.ranked.speed.tokens_per_s) if point.ranked else 0.0


def _far(each: NetworkScaling) -> str:
    """How far one network goes."""
    fit = [point for point in each.points if point.ranked]
    if not fit:
        return f"{each.network}: nothing fits"
    last = fit[-1]
    far = f"{each.network} keeps {last.efficiency:.0%} at {counted(last.gpus, 'GPU')}"
    return far if each.pays == last.gpus else f"{far} and stops paying above {counted(each.pays, 'GPU')}"
