"""Where a process stands among those that measure together."""

from __future__ import annotations

import os
from dataclasses import dataclass

from planner.errors import SpecError


@dataclass(frozen=True)
class Place:
    """A process' rank among all and among those of its host."""

    rank: int
    world: int
    local_rank: int
    local_world: int

    @classmethod
    def told(cls) -> bool:
        """Whether torchrun, or another launcher that sets the same variables, started this process."""
        return "RANK" in os.environ and "WORLD_SIZE" in os.environ

    @classmethod
    def of_torchrun(cls) -> Place:
        """As the launcher's variables say. Raises SpecError where one of them is missing."""
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
        missing = [name for name in names if name not in os.environ]
        if missing:
            raise SpecError(f"the launcher sets RANK but not {', '.join(missing)}: start with torchrun")
        return cls(*(int(os.environ[name]) for name in names))

    @classmethod
    def here(cls, rank: int, world: int) -> Place:
        """One of several processes on this host."""
        return cls(rank, world, rank, world)

    @property
    def nodes(self) -> int:
        """How many hosts there are, with equal numbers of ranks."""
        return max(1, self.world // self.local_world)
