"""The plan that a run follows, as far as files and options tell it, with its estimates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from planner.answer.choices import Choices
from planner.answer.diagnosis.records import Asked, Taken
from planner.answer.evaluate import evaluate
from planner.answer.fits import judged_plan
from planner.answer.importing import judged
from planner.answer.plan_files import read_plan
from planner.answer.question import ask
from planner.answer.ranked_plan import RankedPlan
from planner.emit.reading.settings import Settings
from planner.errors import FileFormatError, PlannerError
from planner.estimate.interval import Verdict
from planner.spec.batch import read_batch_size


class Plans:
    """The plan, and the remarks on what was taken for what is not told."""

    def __init__(self, asked: Asked, files: tuple[Taken, ...]) -> None:
        self.asked, self.files = asked, files
        self.notes: list[str] = []
        self.model = asked.model or self._only("is_model")
        self.cluster = asked.cluster or self._only("is_cluster")

    def _only(self, kind: str) -> str | None:
        found = [str(file.path) for file in self.files if getattr(file, kind)]
        if len(found) > 1:
            self.notes.append(f"of {', '.join(found)} the first is taken")
        return found[0] if found else None

    def plan(self) -> RankedPlan | None:
        """The plan of a plan.json, of settings, or of the options; None where none is told.

        What is wrong with a file is a remark; raises PlannerError for what is wrong with the options.
        """
        for file in self.files:
            if file.path == self.asked.plan and not (file.is_plan or file.settings):
                raise FileFormatError(file.problem or f"is no plan, but {file.taken_for}", where=str(file.path))
            if file.is_plan or file.settings:
                try:
                    found = read_plan(file.path) if file.is_plan else self._of_settings(file)
                except PlannerError as error:
                    if file.path == self.asked.plan:
                        raise
                    self.notes.append(str(error))
                    continue
                if found:
                    self.notes += self._unused(file)
                    return found
        return self._of_options()

    def _unused(self, file: Taken) -> Iterator[str]:
        """Options that a file has overruled: it tells these things itself."""
        names = ("fix", "seq_len", "global_batch_size", "model", "cluster") if file.is_plan else ("fix",)
        given = [f"--{name.replace('_', '-')}" for name in names if getattr(self.asked, name)]
        if given:
            yield f"{' and '.join(given)} left aside: {file.path} tells it"

    def _of_settings(self, file: Taken) -> RankedPlan | None:
        if file.settings is None:
            return None
        settings = replace(file.settings, job={**file.settings.job, **dict(self._job(file.settings))})
        made = judged(file.path, settings, model=self.model, cluster=self.cluster)
        self.notes += made.remarks
        return made.ranked

    def _job(self, settings: Settings) -> Iterator[tuple[str, Any]]:
        """What the options, or a log, tell of the job above the settings."""
        seq_len = self.asked.seq_len or settings.job.get("seq_len")
        if self.asked.seq_len:
            yield "seq_len", seq_len
        if self.asked.global_batch_size:
            world = settings.world_size or 1
            batch = read_batch_size(self.asked.global_batch_size, seq_len=seq_len or 1, world_size=world)
            yield "global_batch_size", batch
        elif "global_batch_size" not in settings.job and (logged := self._logged_batch()):
            yield "global_batch_size", logged

    def _logged_batch(self) -> int | None:
        return next(
            (file.log.global_batch_size for file in self.files if file.log and file.log.global_batch_size), None
        )

    def _of_options(self) -> RankedPlan | None:
        """The plan that --fix means on --cluster, or the best one there."""
        asked = self.asked
        if self.model is None or self.cluster is None:
            return None
        batch: str | int | None = asked.global_batch_size or self._logged_batch()
        choices = Choices(seq_len=asked.seq_len, global_batch_size=batch, fix=asked.fix)
        question = ask(self.model, self.cluster, choices)
        found = evaluate(question, judged_plan(question))
        if question.assumed:
            self.notes.append(f"assumed: {'; '.join(question.assumed)}")
        if not asked.fix and found.verdict is Verdict.DOES_NOT_FIT and self._ran():
            self.notes.append(
                f"no plan fits {self.model} on {self.cluster} as assumed, and yet it ran: it is trained otherwise "
                "(adapters, another optimizer, offload), which its settings or a plan.json tell"
            )
            return None
        if not asked.fix:
            self.notes.append(
                f"no plan is told: held against the best one, {found.words} (--fix or --plan tells another)"
            )
        return found

    def _ran(self) -> bool:
        """Whether there are figures of a run, and no message of one that ended."""
        figures = self.asked.measured_tps or self.asked.measured_mem or any(file.log for file in self.files)
        return bool(figures) and not any(file.signs for file in self.files)


def files_of(asked: Asked) -> tuple[Path, ...]:
    """All files, --plan first, each once."""
    return tuple(dict.fromkeys((*((asked.plan,) if asked.plan else ()), *asked.files)))
