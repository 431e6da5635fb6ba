"""Efficiency profiles by (accelerator, stack): what was measured apart, and what training campaigns taught."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import hypot

from planner.catalogue.collectives import collective_fits
from planner.catalogue.hardware import accelerator as named_accelerator
from planner.catalogue.kernel_tables import kernel_tables, measured_part
from planner.catalogue.learned import ENOUGH, Campaigns, Learned, learned, on_other_hardware, typical
from planner.catalogue.stacks import DEFAULT_STACK, ancestry, profile_defaults, stack_slug
from planner.quantities import Scalar
from planner.spec.accelerator import Accelerator
from planner.spec.cluster import Cluster, Fabric
from planner.spec.profile import Profile

REPEAT_ERROR: Scalar = 0.03
"""Least error that two plans do not share: a run measured twice differs by 1 to 3 % (MLPerf, fms-acceleration)."""
SITE_ERROR: Scalar = 0.15
"""What runs of another site differ by beyond those of the one site that taught a pair: two sites that share a pair
predict each other's runs with 16 to 19 %."""
TRANSFER_ERROR: Scalar = 0.16
"""Least error of factors learned on a like part, or under a like stack: leaving one campaign out of a fit gave biases
of 6 to 25 %."""
UNMEASURED_ERROR: Scalar = 0.28
"""Error on parts and stacks of which no step was measured: as above. With these three, 80 % intervals hold 67 % of the
runs whose whole source is left out (73 % as a mean over sources), and 84 % as shipped (docs/accuracy.md)."""
COLLECTIVES_SOURCE = "collectives: published nccl-tests tables, by kind of link (collectives.toml)"


def profile(
    accelerator: Accelerator | str,
    stack_name: str = DEFAULT_STACK,
    *,
    fabric: Fabric | None = None,
    campaigns: Campaigns | None = None,
) -> Profile:
    """Efficiencies of an accelerator under a stack, the nearest that is known; `notes` say what stands in for what.

    Measured kernels, published collectives and the stack's conventions, with the factors that training campaigns
    taught: of this pair (level "calibrated"), of the stack, or one that it is like, elsewhere ("transferred"), or what
    is typical of all campaigns ("datasheet"). `fabric` lets the efficiency of sockets follow its speed; `campaigns` are
    all that are known unless others are given.
    Raises SpecError for an unknown accelerator or stack name.
    """
    part = named_accelerator(accelerator) if isinstance(accelerator, str) else accelerator
    slug = stack_slug(stack_name)
    base = _assembled(part, slug, fabric)
    start, known = Learned.of(base), learned() if campaigns is None else campaigns
    key = next((key for key in _nearest(part, slug, known) if key in known), None)
    if key is None:
        note = f"no training step was measured with stack {slug}: factors typical of those that were"
        return replace(typical(start, known).applied(base), notes=(*base.notes, note))
    found, exact = known[key], key == (part.name, slug)
    factors = found if _alike(part, key[0]) else on_other_hardware(found, start, known)
    return replace(
        factors.applied(base),
        level="calibrated" if exact else "transferred",
        error=_error(found, exact=exact, alike=factors is found),
        plan_error=max(found.plan_error, REPEAT_ERROR) if exact and found.plan_error else base.plan_error,
        sources=(*base.sources, f"factors: {found.runs} runs of {', '.join(found.sources)}"),
        notes=(*base.notes, *(() if exact else (f"factors of {part.name}/{slug}: those of {'/'.join(key)}",))),
    )


def _error(found: Learned, *, exact: bool, alike: bool) -> Scalar:
    if not exact:
        return max(found.error, TRANSFER_ERROR if alike else UNMEASURED_ERROR)
    return found.error if len(found.sources) > 1 else hypot(found.error, SITE_ERROR)


def unlearned_profile(cluster: Cluster, stack_name: str) -> Profile:
    """What is known of a cluster's accelerator under a stack before any training step was measured."""
    return _assembled(cluster.accelerator, stack_slug(stack_name), cluster.node.fabric)


def _nearest(part: Accelerator, slug: str, known: Campaigns) -> Iterator[tuple[str, str]]:
    """Keys of what was learned by nearness: the stack's own before those that it is like, like parts before others.

    Campaigns of few runs speak for their own pair only.
    """
    yield part.name, slug
    for name in ancestry(slug):
        of_stack = [key for key in known if key[1] == name and known[key].runs >= ENOUGH]
        yield from sorted(of_stack, key=lambda key: (key[0] != part.name, not _alike(part, key[0]), -known[key].runs))


def _alike(part: Accelerator, other: str) -> bool:
    """Whether kernels of the other part tell of this one's."""
    return other in (part.name, measured_part(part)) or named_accelerator(other).architecture == part.architecture


def _assembled(part: Accelerator, slug: str, fabric: Fabric | None) -> Profile:
    kernels = kernel_tables(part)
    return Profile(
        accelerator=part.name,
        stack=slug,
        level="datasheet",
        gemm=kernels.gemm,
        attention=kernels.attention,
        collectives=collective_fits(fabric),
        grouped_matmul=kernels.grouped_matmul,
        matmul_tiles=kernels.matmul_tiles,
        kernel_overhead=kernels.kernel_overhead,
        attention_overhead=kernels.attention_overhead,
        error=UNMEASURED_ERROR,
        sources=(*kernels.sources, COLLECTIVES_SOURCE),
        notes=kernels.notes,
        **profile_defaults(slug),
    )
