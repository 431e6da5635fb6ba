"""Which software runs the plan: targets, stacks and the profile of efficiencies."""

from __future__ import annotations

from pathlib import Path

from planner.catalogue.profiles import profile
from planner.catalogue.stacks import DEFAULT_STACK, stack
from planner.errors import unknown_name
from planner.spec.cluster import Cluster
from planner.spec.profile import Profile
from planner.spec.profile_file import read_profile
from planner.spec.stack import Stack

TARGET_STACKS = {
    "torchrun": DEFAULT_STACK,
    "slurm": DEFAULT_STACK,
    "kubernetes": DEFAULT_STACK,
    "skypilot": DEFAULT_STACK,
    "torchtitan": "torchtitan",
    "megatron": "megatron-core",
    "accelerate": "hf-fsdp",
    "deepspeed": "hf-deepspeed",
}
"""What runs a plan -> the stack whose conventions and efficiencies count."""


def stack_of(target: str | None, name: str | None) -> Stack:
    """The named stack, else the target's, else the planner's own trainer. Raises SpecError for an unknown name."""
    if target is not None and target not in TARGET_STACKS:
        raise unknown_name("target", target, TARGET_STACKS, where="--target")
    return stack(name or TARGET_STACKS.get(target or "", DEFAULT_STACK))


def profile_of(cluster: Cluster, software: Stack, text: str | None = None) -> Profile:
    """The efficiencies: a profile file, a profile named `accelerator/stack`, or the nearest to what is asked.

    Raises SpecError for an unknown name, FileFormatError for a file that is no profile.
    """
    fabric = cluster.node.fabric
    if text is None:
        return profile(cluster.accelerator, software.name, fabric=fabric)
    if text.endswith(".json"):
        return read_profile(Path(text))
    accelerator, slash, stack_name = text.partition("/")
    return profile(accelerator, stack_name if slash else software.name, fabric=fabric)
