"""`nvidia-smi nvlink -s`: which links of each accelerator work, and how fast."""

from __future__ import annotations

import re

from planner.dumps.records import LinkStatus
from planner.dumps.text import figure, lines
from planner.errors import FileFormatError

SOURCE = "nvidia-smi nvlink -s"
MOST_GPUS, MOST_LINKS = 256, 64
ALL_INACTIVE = "all links are inactive"
"""How the driver's error about an accelerator without any working link ends, whatever the case."""
_GPU = re.compile(r"\bGPU\s+(\d{1,4}):\s*(.*)", re.ASCII)
_LINK = re.compile(r"\bLink\s+(\d{1,3}):\s*(<inactive>|[\d.]{1,16}\s*GB/s)", re.IGNORECASE | re.ASCII)


def read_nvlink_status(text: str) -> tuple[LinkStatus, ...]:
    """The links of every accelerator that a text lists. Raises FileFormatError where it lists none."""
    found: list[_Reading] = []
    for _, line in lines(text):
        if gpu := _GPU.search(line):
            found.append(_Reading(int(gpu[1]), gpu[2].partition("(UUID")[0].strip()[:120]))
        elif found:
            found[-1].add(line)
    known = {reading.index: reading.status() for reading in found if reading.rates or reading.dead}
    if not known or len(known) > MOST_GPUS:
        raise FileFormatError(
            f"{SOURCE}: {len(known) or 'no'} accelerators with links; expected are lines such as 'GPU 0: NVIDIA H100', "
            "then 'Link 0: 26.562 GB/s'"
        )
    return tuple(known[index] for index in sorted(known))


class _Reading:
    """The links of one accelerator while its lines are read."""

    def __init__(self, index: int, name: str) -> None:
        self.index, self.name = index, name
        self.rates: dict[int, float | None] = {}
        self.dead = False

    def add(self, line: str) -> None:
        """Take what a line says."""
        if ALL_INACTIVE in line.lower():
            self.dead = True
        link = _LINK.search(line)
        if link and int(link[1]) < MOST_LINKS:
            rate = figure(link[2].split("GB")[0].strip())
            self.rates[int(link[1])] = rate * 1e9 if rate else None

    def status(self) -> LinkStatus:
        """What was read, links in order."""
        last = max(self.rates, default=-1)
        return LinkStatus(self.index, self.name, tuple(self.rates.get(i) for i in range(last + 1)))
