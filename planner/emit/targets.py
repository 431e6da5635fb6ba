"""The targets by name: trainers, launchers, and which go together. Their modules are imported when they are used."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module

from planner.emit.job import Launcher, Trainer
from planner.errors import SpecError, unknown_name

TRAINER_STACKS = {
    "pytorch": "pytorch",
    "torchtitan": "torchtitan",
    "megatron": "megatron-core",
    "accelerate": "hf-fsdp",
    "deepspeed": "hf-deepspeed",
}
"""Trainer -> the stack whose rules, conventions and efficiencies count; the rest is in planner.emit.<trainer>."""
LAUNCHERS = ("torchrun", "slurm", "kubernetes", "skypilot")
"""Each with its module planner.emit.<launcher>."""
OTHER_NAMES = {"trainer": "pytorch", "torch": "pytorch", "k8s": "kubernetes"}
OWN_TRAINER, USUAL_LAUNCHER = "pytorch", "torchrun"
FLAG = "--target"


@dataclass(frozen=True)
class TargetName:
    """A trainer and a launcher by name."""

    trainer: str
    launcher: str

    @property
    def stack(self) -> str:
        """The trainer's stack."""
        return TRAINER_STACKS[self.trainer]

    def __str__(self) -> str:
        """As `--target` takes it."""
        return f"{self.launcher},{self.trainer}"


def target_name(text: str) -> TargetName:
    """The target that a text names: a trainer, a launcher, or both joined by a comma, in any order.

    A trainer alone is started by torchrun; a launcher alone starts the planner's own trainer. Raises SpecError.

    >>> str(target_name("slurm,megatron")), str(target_name("deepspeed")), str(target_name("kubernetes"))
    ('slurm,megatron', 'torchrun,deepspeed', 'kubernetes,pytorch')
    """
    names = [_known(part) for part in text.split(",")]
    trainers = [name for name in names if name in TRAINER_STACKS]
    launchers = [name for name in names if name in LAUNCHERS]
    for several in (trainers, launchers):
        if len(several) > 1:
            raise SpecError(f"{' and '.join(several)} do not go together: name one trainer, one launcher", where=FLAG)
    return TargetName(_first(trainers, OWN_TRAINER), _first(launchers, USUAL_LAUNCHER))


def trainer(name: str) -> Trainer:
    """A trainer by its name."""
    found: Trainer = import_module(f"planner.emit.{name}").TRAINER
    return found


def launcher(name: str) -> Launcher:
    """A launcher by its name."""
    found: Launcher = import_module(f"planner.emit.{name}").LAUNCHER
    return found


def _known(text: str) -> str:
    name = text.strip().lower()
    name = OTHER_NAMES.get(name, name)
    if name not in TRAINER_STACKS and name not in LAUNCHERS:
        raise unknown_name("target", text.strip(), (*TRAINER_STACKS, *LAUNCHERS, *OTHER_NAMES), where=FLAG)
    return name


def _first(names: Iterable[str], otherwise: str) -> str:
    return next(iter(names), otherwise)
