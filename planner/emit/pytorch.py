"""The planner's own trainer, copied beside the plan."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib.resources import files as resources

from planner.emit.environment import GPU_VENDORS
from planner.emit.job import Files, Program, Trainer
from planner.spec.model import ModelKind
from planner.spec.plan_file import FILE_NAME, PlanFile

FOLDER = "trainer"


def files(_contents: PlanFile) -> Files:
    """The modules of the trainer."""
    return _modules()


@cache
def _modules() -> Files:
    folder = resources("planner.emit").joinpath(FOLDER)
    modules = sorted((each for each in folder.iterdir() if each.name.endswith(".py")), key=lambda each: each.name)
    return {f"{FOLDER}/{each.name}": each.read_text(encoding="utf-8") for each in modules}


def program(_contents: PlanFile) -> Program:
    """The trainer with its plan."""
    return Program(
        words=("-m", FOLDER, FILE_NAME),
        requirements=("torch>=2.11",),
        elastic=("--elastic",),
        try_out=("--device", "cpu", "--shrink", "--steps", "3"),
    )


def refusals(contents: PlanFile) -> Iterator[str]:
    """What it has no code for: encoder-decoder models, and accelerators that torch does not drive as GPUs."""
    if contents.model.kind is ModelKind.ENCODER_DECODER:
        yield "it has no encoder-decoder models"
    if contents.cluster.accelerator.vendor not in GPU_VENDORS:
        yield f"it runs on NVIDIA and AMD GPUs, not on {contents.cluster.accelerator.name}"


TRAINER = Trainer("pytorch", "pytorch", "the planner's own trainer (torch 2.11 and later)", files, program, refusals)
