"""What a run says while it measures: how far it is, and how much time is left."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any

from calibration.measure.ranks import Ranks
from calibration.measurements import Measurement

if TYPE_CHECKING:
    from calibration.measure.run import Job


class Progress:
    """A bar on stderr of the first rank, where somebody looks at it."""

    def __init__(self, job: Job, deadline: float, ranks: Ranks, total: int, left_over: int) -> None:
        self.deadline, self.done, self.total = deadline, total - left_over, total
        self.shown = ranks.first and not job.quiet and sys.stderr.isatty()
        self.bar: Any = None

    def __enter__(self) -> Progress:
        if self.shown:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
            from rich.progress import Progress as Bar

            columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[left]}  {task.description}"))
            self.bar = Bar(*columns, console=Console(stderr=True), transient=True)
            self.bar.start()
            self.task = self.bar.add_task("", total=self.total, completed=self.done, left="")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.bar is not None:
            self.bar.stop()

    def starts(self, measurement: Measurement) -> None:
        """A measurement begins."""
        if self.bar is not None:
            left = max(0, int(self.deadline - time.time()))
            self.bar.update(self.task, description=measurement.key, left=f"{left // 60}:{left % 60:02d} left")

    def ends(self) -> None:
        """A measurement has ended."""
        if self.bar is not None:
            self.bar.advance(self.task)
