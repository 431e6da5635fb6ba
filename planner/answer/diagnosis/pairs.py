"""One slow pair, node or cable among many equal measurements."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator

import numpy as np

from planner.answer.diagnosis.records import Case, Cause, Strength
from planner.answer.diagnosis.tables import bulk
from planner.catalogue.collective_errors import CALIBRATED, spread
from planner.dumps.records import CollectiveTable
from planner.quantities import format_bandwidth

FEWEST = 3
"""Equal tables from which one can be told to be odd."""
ODD = 3.0
"""How many times the interval of equal measurements (calibrated) a table has to be below the others."""


def slow_pairs(case: Case) -> Iterator[Cause]:
    """Tables of one collective on as many ranks: those far below the median, and the node that they share."""
    groups: defaultdict[tuple[str, int | None, int | None], list[tuple[str, CollectiveTable]]] = defaultdict(list)
    for file in case.files:
        for table in file.dump.tables if file.dump else ():
            groups[table.collective, table.ranks, table.nodes].append((str(file.path), table))
    for (collective, ranks, _), found in groups.items():
        if len(found) >= FEWEST:
            yield from _odd(collective, ranks or 0, found)


def _odd(collective: str, ranks: int, found: list[tuple[str, CollectiveTable]]) -> Iterator[Cause]:
    sizes = set.intersection(*({sample.size for sample in bulk(table.samples)} for _, table in found))
    if not sizes:
        return
    size = max(sizes)
    rates = [next(each.busbw for each in table.samples if each.size == size) for _, table in found]
    usual = float(np.quantile(rates, 0.75))  # which half of the tables being slow leaves as it is
    floor = usual * float(np.exp(-ODD * spread(CALIBRATED, "any", size)))
    slow = [i for i, rate in enumerate(rates) if rate < floor]
    if not slow or len(slow) > len(found) // 2:
        return
    names = [table.hosts for _, table in found]
    shared = _shared([names[i] for i in slow], [names[i] for i in range(len(found)) if i not in slow])
    worst = min(slow, key=lambda i: rates[i])
    who = f"node {shared}" if shared else " and ".join(names[worst] or (found[worst][0],))
    fine = statistics.median(rate for i, rate in enumerate(rates) if i not in slow)
    others = f"the {len(found) - len(slow)} others {format_bandwidth(fine)}"
    yield Cause(
        cause="one bad cable or node",
        evidence=f"{collective} of {ranks} ranks: {_named(slow, found, rates)}, {others}; {who} is in "
        f"{'all of the slow ones' if len(slow) > 1 else 'the slow one'}",
        setting=f"leave {who} out (srun --exclude, mpirun's host file) until its cable, port and slot are looked at",
        next_command="ibstat; mlxlink -d mlx5_0 -m -c; perfquery; nvidia-smi topo -m  # there; then pairs of it again",
        strength=Strength.SHOWN,
        gain=1 - rates[worst] / usual,
    )


def _named(slow: list[int], found: list[tuple[str, CollectiveTable]], rates: list[float]) -> str:
    parts = [f"{format_bandwidth(rates[i])} in {found[i][0]}, line {found[i][1].line}" for i in slow[:3]]
    return " and ".join(parts) + (f" and {len(slow) - 3} more" if len(slow) > 3 else "")


def _shared(slow: list[tuple[str, ...]], fast: list[tuple[str, ...]]) -> str:
    """The one host that all slow tables have and no fast one has; empty where there is none."""
    counts = Counter(host for hosts in slow for host in set(hosts))
    fine = {host for hosts in fast for host in hosts}
    suspects = [host for host, number in counts.items() if number == len(slow) and host not in fine]
    return suspects[0] if len(suspects) == 1 else ""
