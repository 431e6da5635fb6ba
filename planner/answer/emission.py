"""Launch files of a plan: what they are for a target, or why the target cannot have them."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from planner.answer.evaluate import evaluate
from planner.answer.nearest import Software, differences, fix_text, nearest_plan
from planner.answer.plan_files import plan_file_of
from planner.answer.question import Question
from planner.answer.software import own_refusals, profile_of, refusals
from planner.catalogue.stacks import DEFAULT_STACK, stack
from planner.emit.job import Files, Job, Launcher, Trainer
from planner.emit.targets import FLAG, TargetName, launcher, target_name, trainer
from planner.emit.write import write_files
from planner.errors import SpecError
from planner.explain.words import plan_words
from planner.quantities import counted, format_seconds
from planner.spec.plan_file import FILE_NAME, PlanFile, ProfileReference, plan_file_text
from planner.spec.stack import unsupported

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Emission:
    """Files for a target, by path within their folder, the command that starts them, and what to know of them."""

    target: str
    folder: Path
    files: Files
    start: str
    notes: tuple[str, ...]

    @property
    def paths(self) -> list[Path]:
        """The files as they are called from here."""
        return [self.folder / name for name in self.files]

    def as_dict(self) -> dict[str, object]:
        """The JSON of `planner emit --json`."""
        return {
            "schema_version": SCHEMA_VERSION,
            "target": self.target,
            "files": [str(path) for path in self.paths],
            "start": self.start,
            "notes": list(self.notes),
        }


def emit(contents: PlanFile, target: str, folder: Path, *, force: bool = False) -> Emission:
    """Write the files that run a plan into a folder.

    Raises SpecError where the target cannot express the plan, naming the nearest that it can, or where a file is there
    already and `force` is not given; FileFormatError where something cannot be written.
    """
    made = emission(contents, target, folder)
    write_files(made.files, folder, force=force)
    return made


def keep(contents: PlanFile, folder: Path, *, force: bool = False) -> Path:
    """Write plan.json alone into a folder and return its path. Raises as `emit` does."""
    return write_files({FILE_NAME: plan_file_text(contents)}, folder, force=force)[0]


def emission(contents: PlanFile, target: str, folder: Path) -> Emission:
    """The files that run a plan, in memory. Raises SpecError where the target cannot express the plan."""
    name = target_name(target)
    maker, starter = trainer(name.trainer), launcher(name.launcher)
    contents = _for_stack(contents, name)
    _check(contents, maker, starter)
    job = _job(contents, maker)
    files = {**job.files, **starter.files(job)}
    return Emission(
        target=str(name),
        folder=folder,
        files=dict(sorted(files.items())),
        start=starter.start(job, _in_shell(folder)),
        notes=(*_notes(contents, name), *starter.notes(job)),
    )


def _job(contents: PlanFile, maker: Trainer) -> Job:
    files = {**maker.files(contents), FILE_NAME: plan_file_text(contents)}
    return Job(contents, plan_words(contents.plan), maker, maker.program(contents), files)


def _in_shell(folder: Path) -> str:
    """The folder as a shell takes it: a command and no option, whatever it is called."""
    text = str(folder)
    plain = os.path.isabs(text) or text == os.curdir
    return shlex.quote(text if plain else os.path.join(os.curdir, text))


def _for_stack(contents: PlanFile, name: TargetName) -> PlanFile:
    """The plan predicted anew for the target's stack, if it was made for none in particular.

    What the user chose stays: another stack, or a profile of their own.
    """
    if contents.stack.name != DEFAULT_STACK or name.stack == DEFAULT_STACK:
        return contents
    usual = profile_of(contents.cluster, contents.stack)
    if contents.profile != ProfileReference.of(usual):
        return contents
    software = stack(name.stack)
    anew = Question(
        contents.model, contents.cluster, contents.workload, software, profile_of(contents.cluster, software)
    )
    predicted = plan_file_of(evaluate(anew, contents.plan))
    return replace(contents, stack=software, profile=predicted.profile, prediction=predicted.prediction)


def _check(contents: PlanFile, maker: Trainer, starter: Launcher) -> None:
    """Raise SpecError, in one line, with the first reason against the plan and what would be right."""
    found = list(refusals(contents, maker.name))
    if found:
        raise SpecError(f"{maker.name} cannot express the plan: {_why(found, contents, maker)}", where=FLAG)
    for reason in _unlaunchable(contents, maker, starter):
        raise SpecError(f"{starter.name} cannot start the plan: {reason}", where=FLAG)


def _why(found: list[str], contents: PlanFile, maker: Trainer) -> str:
    """The first of the reasons, and the nearest plan; where no plan would do, the reason that stands against all."""
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    if unsupported(stack(maker.stack), contents.workload):
        return f"{found[0]}{more}"
    nearest = _nearest(contents, maker)
    if not nearest:
        lasting = next(own_refusals(contents, maker.name), found[0])
        return f"{lasting}{more}; no plan of this job that fits is one that it can"
    return f"{found[0]}{more}; {nearest}"


def _unlaunchable(contents: PlanFile, maker: Trainer, starter: Launcher) -> Iterator[str]:
    sizes = {pool.node.gpus_per_node for pool in contents.cluster.pools}
    if len(sizes) > 1:
        listed = " and of ".join(str(size) for size in sorted(sizes))
        yield f"its nodes are of {listed} GPUs, and launch files are for nodes of one size"
    else:
        yield from starter.refusals(_job(contents, maker))


def _nearest(contents: PlanFile, maker: Trainer) -> str:
    """The nearest plan that a trainer can express, as options that reproduce it; empty where there is none."""
    software = stack(maker.stack)
    job = Software(
        contents.model, contents.cluster, contents.workload, software, profile_of(contents.cluster, software)
    )
    found = nearest_plan(
        contents.plan, job, lambda plan: not any(True for _ in refusals(replace(contents, plan=plan), maker.name))
    )
    if found is None:
        return ""
    asked = Question(job.model, job.cluster, job.workload, job.stack, job.profile)
    seconds = format_seconds(evaluate(asked, found).step_time)
    changed = differences(contents.plan, found)
    return (
        f"the nearest that it can: --target {maker.name} --fix {fix_text(found, job)} "
        f"({counted(len(changed), 'change')}: {', '.join(changed)}; {seconds} per step)"
    )


def _notes(contents: PlanFile, name: TargetName) -> Iterator[str]:
    """What of the prediction does not speak of this target."""
    if contents.stack.name != name.stack:
        yield f"the prediction is for the stack {contents.stack.name}, not for that of {name.trainer}"
    if contents.prediction.get("memory_verdict") == "does_not_fit":
        yield "the plan is not predicted to fit in memory"
