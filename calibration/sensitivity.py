"""Which measurements would change an answer: what the planner's predictions for one question hang on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from calibration.grids import Array
from calibration.measurement_plan import TINY_GEMM, distinct, gemm, sizes_of
from calibration.measurements import Machine, Measurement
from planner.answer.evaluate import links_of
from planner.answer.question import Question
from planner.answer.recommend import answer
from planner.estimate.products import Product, layer_products
from planner.estimate.shapes import shapes
from planner.estimate.step_time import step_time
from planner.quantities import Flop, Scalar
from planner.spec.plan import Plan
from planner.spec.profile import COLLECTIVES, CollectiveFit, Profile
from planner.tables import Table

TOP = 5
"""Plans among which the choice lies."""
MOST_SHAPES = 12
"""Matrix products of the model that are measured beside the usual sizes."""
OF_ALL: Scalar = 0.25
"""What a change of all step times alike counts for beside one that changes their order."""


@dataclass(frozen=True)
class Doubt:
    """Measurements by name, and a profile whose parameters are as far off as they may be unmeasured."""

    names: tuple[str, ...]
    changed: Callable[[Profile], Profile]


def _scaled_table(table: Table, factor: Scalar) -> Table:
    return Table(table.axes, np.clip(table.values * factor, 1e-3, 1.0))


def _slower(fit: CollectiveFit) -> CollectiveFit:
    return replace(fit, efficiency=fit.efficiency / 1.3, start=fit.start * 2, step_latency=fit.step_latency * 2)


def _of_collective(name: str) -> Doubt:
    return Doubt(
        (name,),
        lambda profile: replace(
            profile,
            collectives={key: _slower(fit) if key[1] == name else fit for key, fit in profile.collectives.items()},
        ),
    )


DOUBTS = (
    Doubt(("gemm",), lambda p: replace(p, gemm={name: _scaled_table(t, 0.8) for name, t in p.gemm.items()})),
    Doubt(("gemm tiny",), lambda p: replace(p, kernel_overhead=p.kernel_overhead * 2)),
    Doubt(
        ("attention",), lambda p: replace(p, attention={name: _scaled_table(t, 0.7) for name, t in p.attention.items()})
    ),
    Doubt(("copy", "triad"), lambda p: replace(p, memory_efficiency=p.memory_efficiency * 0.85)),
    Doubt(("elementwise",), lambda p: replace(p, elementwise_scale=p.elementwise_scale * 1.4)),
    Doubt(("tiny_layer", "dispatch", "graph_operator"), lambda p: replace(p, launch_time=p.launch_time * 2)),
    Doubt(("training_step",), lambda p: replace(p, compute_scale=p.compute_scale * 1.2, fixed_time=p.fixed_time * 2)),
    Doubt(("overlap",), lambda p: replace(p, overlap_penalty=min(1.0, p.overlap_penalty + 0.3))),
    *(_of_collective(name) for name in COLLECTIVES if name != "broadcast"),
)


def step_times(question: Question, plans: Sequence[Plan], profile: Profile) -> Array:
    """Predicted step times of plans under a profile."""
    asked = question
    return np.array(
        [
            float(
                step_time(
                    asked.model, plan, asked.workload, asked.cluster, links_of(asked, plan),
                    profile=profile, stack=asked.stack,
                ).total
            )
            for plan in plans
        ]
    )  # fmt: skip


def influence(question: Question, plans: Sequence[Plan]) -> dict[str, Scalar]:
    """Name of a measurement -> how far what it tells moves the step times of plans, above all against each other.

    Finite differences: each parameter as far off as it may be while it is not measured.
    """
    before = step_times(question, plans, question.profile)
    found: dict[str, Scalar] = {}
    for doubt in DOUBTS:
        moved = np.log(step_times(question, plans, doubt.changed(question.profile)) / before)
        value = float(np.ptp(moved) + OF_ALL * np.abs(moved).mean())
        found |= dict.fromkeys(doubt.names, value)
    return found


def ranked(measurements: Sequence[Measurement], question: Question, machine: Machine) -> list[Measurement]:
    """The measurements in the order of what they say of a question; products of its model's own shapes among them.

    Of equal measurements each further one counts for less. Raises NoFeasiblePlan where nothing fits.
    """
    plans = [row.plan for row in answer(question, top=TOP).plans]
    value = influence(question, plans)
    own = list(own_products(question, plans, machine))
    every = distinct([*own, *measurements])
    met: dict[str, int] = {}
    scores: dict[str, float] = {}
    for one in every:
        kind = _kind(one)
        met[kind] = met.get(kind, 0) + 1
        scores[one.key] = value.get(kind, 0.0) / met[kind]
    return sorted(every, key=lambda one: -scores[one.key])


def _kind(one: Measurement) -> str:
    row: Mapping[str, object] = one.parameters
    tiny = one.name == "gemm" and (row["m"], row["n"], row["k"]) == TINY_GEMM
    return "gemm tiny" if tiny else one.name


def own_products(question: Question, plans: Sequence[Plan], machine: Machine) -> Iterator[Measurement]:
    """The longest matrix products that plans are made of, in the precision of the job where it is measured."""
    precision, sizes = question.workload.precision, sizes_of(machine)
    if precision not in sizes.precisions:
        return
    flops: dict[tuple[int, int, int], Flop] = {}
    for plan in plans:
        for layer, _ in question.model.layer_kinds:
            for one in layer_products(question.model, layer, plan, shapes(layer, plan, question.workload)):
                if isinstance(one, Product):
                    rows, inputs, outputs = (max(1, round(float(n))) for n in (one.tokens, one.inputs, one.outputs))
                    for shape in ((rows, outputs, inputs), (rows, inputs, outputs), (outputs, inputs, rows)):
                        flops[shape] = 2.0 * rows * inputs * outputs
    longest = sorted((shape for shape in flops if flops[shape] <= sizes.most_flops), key=lambda shape: -flops[shape])
    yield from (gemm(precision, *shape) for shape in longest[:MOST_SHAPES])
