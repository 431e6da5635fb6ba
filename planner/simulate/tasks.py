"""Tasks of a step: what runs on which stream of which rank, and what it waits for."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from planner.quantities import Seconds

COMPUTE = "compute"


class Tasks:
    """A growing list of tasks; each is known by its number.

    A stream runs its tasks in the order in which they were added, as a CUDA stream does. `link` names what a transfer
    shares with other transfers of its rank (empty: nothing); `hinders` marks transfers that slow compute beside them,
    and are slowed by it. A task may be promised, so that others can wait for it before it is added.
    """

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.rank: list[int] = []
        self.stream: list[str] = []
        self.label: list[object] = []
        self.link: list[str] = []
        self.hinders: list[bool] = []
        self.waits: list[int] = []
        """Tasks that each task waits for."""
        self.followers: list[list[int]] = []
        self.added: list[bool] = []
        self._last: dict[tuple[int, str], int] = {}
        self._promised: dict[Hashable, int] = {}

    def __len__(self) -> int:
        return len(self.seconds)

    def promise(self, key: Hashable) -> int:
        """The number of a task that is, or will be, added as `key`."""
        if key not in self._promised:
            self._promised[key] = self._slot()
        return self._promised[key]

    def add(
        self,
        rank: int,
        stream: str,
        seconds: Seconds,
        label: object,
        *,
        after: Iterable[int] = (),
        link: str = "",
        hinders: bool = False,
        key: Hashable = None,
    ) -> int:
        """Add a task that starts when those `after` it names, and the stream's last, have ended; returns its number."""
        task = self._slot() if key is None else self.promise(key)
        self.seconds[task], self.rank[task], self.stream[task], self.label[task] = float(seconds), rank, stream, label
        self.link[task], self.hinders[task], self.added[task] = link, hinders, True
        previous = self._last.get((rank, stream))
        needed = {*after} if previous is None else {previous, *after}
        for each in needed:
            self.followers[each].append(task)
        self.waits[task] = len(needed)
        self._last[rank, stream] = task
        return task

    def last(self, rank: int, stream: str) -> tuple[int, ...]:
        """The task that was added last to a stream: one, or none."""
        return (self._last[rank, stream],) if (rank, stream) in self._last else ()

    def _slot(self) -> int:
        self.seconds.append(0.0)
        self.rank.append(0)
        self.stream.append("")
        self.label.append(None)
        self.link.append("")
        self.hinders.append(False)
        self.waits.append(0)
        self.added.append(False)
        self.followers.append([])
        return len(self.seconds) - 1
