"""Which software runs the plan: targets, stacks and the profile of efficiencies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from planner.catalogue.collectives import collective_fits
from planner.catalogue.hardware import accelerator
from planner.catalogue.profiles import profile
from planner.catalogue.stacks import DEFAULT_STACK, stack, stack_slug
from planner.emit.targets import TRAINER_STACKS, target_name, trainer
from planner.errors import SpecError
from planner.search.legality import reasons
from planner.search.problem import Problem
from planner.spec.cluster import Cluster
from planner.spec.plan_file import PlanFile
from planner.spec.profile import Profile
from planner.spec.profile_file import read_profile
from planner.spec.stack import Stack, unsupported
from planner.validate.predict import ProfileOf


def stack_of(target: str | None, name: str | None) -> Stack:
    """The named stack, else the target's, else one that has every strategy. Raises SpecError for an unknown name."""
    targeted = DEFAULT_STACK if target is None else target_name(target).stack
    return stack(targeted if name is None else name, where="--stack")


def check_method(software: Stack, method: str) -> None:
    """Raise SpecError where a stack cannot train in that way."""
    if method not in software.methods:
        raise SpecError(f"{software.name} has no {method}; it has: {', '.join(software.methods)}", where="--method")


def targets_of(contents: PlanFile) -> tuple[str, ...]:
    """The trainers that can express a plan and its job. Launchers start any of them, so they are not named."""
    return tuple(name for name in TRAINER_STACKS if not any(True for _ in refusals(contents, name)))


def refusals(contents: PlanFile, trainer_name: str) -> Iterator[str]:
    """Why a trainer cannot express a plan or its job, in words; nothing if it can."""
    software = stack(TRAINER_STACKS[trainer_name])
    yield from unsupported(software, contents.workload).values()
    yield from reasons(contents.plan, Problem.of(contents.model, contents.cluster, contents.workload, software))
    yield from own_refusals(contents, trainer_name)


def own_refusals(contents: PlanFile, trainer_name: str) -> Iterator[str]:
    """What a trainer has against a plan or its job beyond the rules of its stack, in words."""
    yield from trainer(trainer_name).refusals(contents)


def profile_of(cluster: Cluster, software: Stack, text: str | None = None) -> Profile:
    """The efficiencies: a profile file, a profile named `accelerator/stack`, or the nearest to what is asked.

    Raises SpecError for an unknown name, FileFormatError for a file that is no profile.
    """
    return _profile(cluster, software.name, text)


def profiles_of(texts: Sequence[str]) -> ProfileOf:
    """From a cluster and a stack to the profile to predict with.

    The first of those named that is of the cluster's accelerator, else the nearest of the catalogue. Raises as
    `profile_of` does.
    """
    named = [(text, _named_part(text)) for text in texts]

    def found(cluster: Cluster, stack_name: str) -> Profile:
        text = next((text for text, part in named if part == cluster.accelerator.name), None)
        return _profile(cluster, stack_name, text)

    return found


def _named_part(text: str) -> str:
    """The accelerator that a named profile is of."""
    if text.endswith(".json"):
        return read_profile(Path(text)).accelerator
    return accelerator(text.partition("/")[0], where="--profile").name


def _profile(cluster: Cluster, stack_name: str, text: str | None) -> Profile:
    fabric = cluster.node.fabric
    if text is None:
        return profile(cluster.accelerator, stack_name, fabric=fabric)
    if text.endswith(".json"):
        own = read_profile(Path(text))
        return replace(own, collectives={**collective_fits(fabric), **own.collectives})
    part_name, slash, of_stack = text.partition("/")
    part = accelerator(part_name, where="--profile")
    return profile(part, stack_slug(of_stack, where="--profile") if slash else stack_name, fabric=fabric)
