"""Efficiency profiles by (accelerator, stack): fitted where stored, else assembled from what was measured apart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

from planner.catalogue.collectives import collective_fits
from planner.catalogue.hardware import accelerator as named_accelerator
from planner.catalogue.kernel_tables import kernel_tables, measured_part
from planner.catalogue.names import FOLDER
from planner.catalogue.stacks import DEFAULT_STACK, ancestry, profile_defaults, stack_names, stack_slug
from planner.quantities import Scalar
from planner.spec.accelerator import Accelerator
from planner.spec.cluster import Fabric
from planner.spec.profile import Profile
from planner.spec.profile_file import read_profile

PROFILES = FOLDER / "profiles"
"""Fitted profiles, as <accelerator>/<stack>.json."""
TRANSFER_ERROR: Scalar = 0.12
"""Error of a profile fitted on another stack: leaving one campaign out of a fit gave biases of 6 to 25 %."""
UNMEASURED_ERROR: Scalar = 0.25
"""Error where no training step was measured on the part: as above, on stacks and parts new to the fit."""
COLLECTIVES_SOURCE = "collectives: published nccl-tests tables, by kind of link (collectives.toml)"


def profile(
    accelerator: Accelerator | str, stack_name: str = DEFAULT_STACK, *, fabric: Fabric | None = None
) -> Profile:
    """Efficiencies of an accelerator under a stack, the nearest that is known; `notes` say what stands in for what.

    In this order: the profile fitted to this pair; one fitted to the accelerator (or to the part that stands in for
    it) under the nearest stack, with a wider error; one assembled from measured kernels, published collectives and
    the stack's conventions (level "datasheet"). `fabric` lets the efficiency of sockets follow its speed.
    Raises SpecError for an unknown accelerator or stack name.
    """
    part = named_accelerator(accelerator) if isinstance(accelerator, str) else accelerator
    slug = stack_slug(stack_name)
    found = _stored(part, slug) or _assembled(part, slug)
    return replace(found, collectives={**collective_fits(fabric), **found.collectives})


@cache
def stored_profiles() -> dict[tuple[str, str], Profile]:
    """Fitted profiles by (accelerator, stack)."""
    return {(path.parent.name, path.stem): read_profile(path) for path in sorted(PROFILES.glob("*/*.json"))}


def _stored(part: Accelerator, slug: str) -> Profile | None:
    """The nearest fitted profile, if any was fitted to the accelerator or its stand-in."""
    stored = stored_profiles()
    key = next((key for key in _nearest(part, slug) if key in stored), None)
    if key is None:
        return None
    found = stored[key]
    if key == (part.name, slug):
        return found
    note = f"efficiencies of {part.name}/{slug}: those fitted to {found.name}"
    return replace(
        found,
        accelerator=part.name,
        stack=slug,
        level="transferred",
        error=max(found.error, TRANSFER_ERROR if key[0] == part.name else UNMEASURED_ERROR),
        notes=(note, *found.notes),
    )


def _nearest(part: Accelerator, slug: str) -> Iterator[tuple[str, str]]:
    """Keys of fitted profiles by nearness: the accelerator before its stand-in, related stacks before others."""
    related = ancestry(slug)
    cousins = [name for name in stack_names() if set(ancestry(name)[:-1]) & set(related[:-1])]
    for name in dict.fromkeys((part.name, measured_part(part))):
        yield from ((name, other) for other in dict.fromkeys((*related, *cousins, *stack_names())))


def _assembled(part: Accelerator, slug: str) -> Profile:
    kernels = kernel_tables(part)
    return Profile(
        accelerator=part.name,
        stack=slug,
        level="datasheet",
        gemm=kernels.gemm,
        attention=kernels.attention,
        collectives={},
        grouped_matmul=kernels.grouped_matmul,
        kernel_overhead=kernels.kernel_overhead,
        attention_overhead=kernels.attention_overhead,
        error=UNMEASURED_ERROR,
        sources=(*kernels.sources, COLLECTIVES_SOURCE),
        notes=(*kernels.notes, f"no training step was measured on {part.name} with stack {slug}"),
        **profile_defaults(slug),
    )
