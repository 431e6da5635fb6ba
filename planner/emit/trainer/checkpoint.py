"""Distributed checkpoints: saved whole or not at all, resumed under another plan as well, the last few kept."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from threading import Thread
from typing import Any

import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.optim import Optimizer

from .settings import Refusal

FLAT = StateDictOptions(flatten_optimizer_state_dict=True)
"""Optimizer states by parameter name, so that another division into stages finds them."""
PREFIX = "step-"


class Checkpoints:
    """A folder of checkpoints of a model in parts, with an optimizer for each part."""

    def __init__(self, folder: Path, parts: Sequence[nn.Module], optimizers: Sequence[Optimizer], *, keep: int) -> None:
        self.folder, self.parts, self.optimizers, self.keep = folder, parts, optimizers, keep

    def save(self, step: int) -> None:
        """Save after `step` steps; a checkpoint that has its name is whole."""
        final = self.folder / f"{PREFIX}{step:09d}"
        unfinished = final.with_name(f"{final.name}.part")
        dcp.save(self._state() | {"step": step}, checkpoint_id=unfinished)
        if _rank() == 0:
            shutil.rmtree(final, ignore_errors=True)
            unfinished.rename(final)
            for old in self.saved()[: -self.keep]:
                Thread(target=shutil.rmtree, args=(old,), kwargs={"ignore_errors": True}).start()
        if dist.is_initialized():
            dist.barrier()

    def resume(self) -> int:
        """Load the newest checkpoint; the number of steps that it has done, 0 where there is none."""
        saved = self.saved()
        if not saved:
            return 0
        state = self._state() | {"step": 0}
        try:
            dcp.load(state, checkpoint_id=saved[-1])
        except (Exception, CheckpointException) as error:
            reason = str(error).strip().splitlines()[-1:] or [type(error).__name__]
            raise Refusal(
                f"{saved[-1]} cannot be loaded ({reason[0]}); without it the one before is resumed"
            ) from error
        for part, optimizer in zip(self.parts, self.optimizers, strict=True):
            set_model_state_dict(part, _own(state["model"], get_model_state_dict(part)))
            set_optimizer_state_dict(part, optimizer, _own(state["optimizer"], _states(part, optimizer)), options=FLAT)
        return int(state["step"])

    def saved(self) -> list[Path]:
        """Finished checkpoints, oldest first."""
        return sorted(path for path in self.folder.glob(f"{PREFIX}{'[0-9]' * 9}") if (path / ".metadata").exists())

    def _state(self) -> dict[str, Any]:
        model: dict[str, Any] = {}
        states: dict[str, Any] = {}
        for part, optimizer in zip(self.parts, self.optimizers, strict=True):
            model |= get_model_state_dict(part)
            states |= _states(part, optimizer)
        return {"model": model, "optimizer": states}


def _states(part: nn.Module, optimizer: Optimizer) -> dict[str, Any]:
    return dict(get_optimizer_state_dict(part, optimizer, options=FLAT))


def _own(everything: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    return {name: everything[name] for name in own}


def _rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0
