"""Which software runs the plan: targets, stacks and the profile of efficiencies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from planner.catalogue.collectives import collective_fits
from planner.catalogue.hardware import accelerator
from planner.catalogue.profiles import profile
from planner.catalogue.stacks import DEFAULT_STACK, stack, stack_slug
from planner.errors import SpecError, unknown_name
from planner.search.legality import legal
from planner.search.problem import Problem
from planner.spec.cluster import Cluster
from planner.spec.plan import Plan
from planner.spec.profile import Profile
from planner.spec.profile_file import read_profile
from planner.spec.stack import Stack

TARGET_STACKS = {
    "torchrun": "pytorch",
    "slurm": "pytorch",
    "kubernetes": "pytorch",
    "skypilot": "pytorch",
    "torchtitan": "torchtitan",
    "megatron": "megatron-core",
    "accelerate": "hf-fsdp",
    "deepspeed": "hf-deepspeed",
}
"""What runs a plan -> the stack whose conventions and efficiencies count."""
LAUNCHERS = ("slurm", "kubernetes", "skypilot")


def stack_of(target: str | None, name: str | None) -> Stack:
    """The named stack, else the target's, else one that has every strategy. Raises SpecError for an unknown name."""
    if target is not None and target not in TARGET_STACKS:
        raise unknown_name("target", target, TARGET_STACKS, where="--target")
    return stack(TARGET_STACKS.get(target or "", DEFAULT_STACK) if name is None else name, where="--stack")


def check_method(software: Stack, method: str) -> None:
    """Raise SpecError where a stack cannot train in that way."""
    if method not in software.methods:
        raise SpecError(f"{software.name} has no {method}; it has: {', '.join(software.methods)}", where="--method")


def targets_of(plan: Plan, problem: Problem) -> tuple[str, ...]:
    """The trainers that can express a plan; launchers run plain PyTorch and are named by it alone."""
    trainers = {target: stack(name) for target, name in TARGET_STACKS.items() if target not in LAUNCHERS}
    return tuple(
        target
        for target, software in trainers.items()
        if problem.method in software.methods and legal(plan, replace(problem, stack=software)).all()
    )


def profile_of(cluster: Cluster, software: Stack, text: str | None = None) -> Profile:
    """The efficiencies: a profile file, a profile named `accelerator/stack`, or the nearest to what is asked.

    Raises SpecError for an unknown name, FileFormatError for a file that is no profile.
    """
    fabric = cluster.node.fabric
    if text is None:
        return profile(cluster.accelerator, software.name, fabric=fabric)
    if text.endswith(".json"):
        own = read_profile(Path(text))
        return replace(own, collectives={**collective_fits(fabric), **own.collectives})
    part_name, slash, stack_name = text.partition("/")
    part = accelerator(part_name, where="--profile")
    return profile(part, stack_slug(stack_name, where="--profile") if slash else software.name, fabric=fabric)
