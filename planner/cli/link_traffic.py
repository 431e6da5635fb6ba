"""The traffic of a plan on the links of its cluster, printed for people from the outermost links to the innermost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from planner.answer.link_traffic import PlanTraffic, link_traffic
from planner.answer.ranked_plan import RankedPlan
from planner.cli.printing import Heading, say, table
from planner.quantities import GB, format_seconds, three_digits
from planner.topology.describe import link_class

if TYPE_CHECKING:
    from planner.explain.hiding import Faster, Hiding
    from planner.explain.links import AxisTraffic, LinkClass
    from planner.spec.cluster import Cluster

NAMES: Mapping[str, str] = {
    "wan": "WAN",
    "pod_uplink": "pod uplinks",
    "leaf_uplink": "leaf uplinks",
    "nic": "NIC",
    "nic_slot": "NIC's PCIe slot",
    "socket": "CPU socket link",
    "host_memory": "host memory",
    "pcie_uplink": "PCIe switch uplink",
    "gpu_pcie": "GPU PCIe",
    "gpu_switch": "GPU to switch",
    "gpu_gpu": "GPU to GPU",
}
"""Class of links (a key of LINK_CLASSES) -> its name for people."""
BAR = 10
"""Cells of a bar that stands for the whole step."""
MOST_LEVELS = 4
"""Amounts that are told apart among the links of one class."""


def print_link_traffic(ranked: RankedPlan) -> None:
    """Each class of links with the axes that load it, the link that holds each axis back, and what would hide it."""
    cluster, traffic = ranked.question.cluster, link_traffic(ranked)
    say(f"Plan: {ranked.words}.", indent="  ")
    say()
    if not traffic.axes:
        return say("No link bears any traffic: nobody communicates.")
    nodes = " and ".join(f"{pool.num_nodes:,} x {pool.node.name}" for pool in cluster.pools)
    step = format_seconds(traffic.step_time)
    say(
        f"Links of {nodes}, from the outermost to the innermost, and what a step of {step} puts on the busiest of each "
        "kind, in its busier direction (busy: at nominal bandwidth):"
    )
    _print_classes(traffic, cluster)
    say()
    say("The link that each axis keeps busy longest:")
    _print_axes(traffic.axes, traffic.step_time)
    if traffic.hiding:
        say()
        say("Exposed communication, and the bandwidth of the link that limits it from which it would be hidden:")
        _print_hiding(traffic.hiding, traffic.step_time)
    return None


def _print_classes(traffic: PlanTraffic, cluster: Cluster) -> None:
    shown = [each for each in traffic.classes if each.by_axis and not _repeats(each, traffic.classes)]
    headings = [
        Heading("link", left=True),
        Heading("links"),
        Heading("GB/s"),
        Heading("busiest\n(GB)"),
        Heading("mean\n(GB)", 2),
        Heading("busy"),
        Heading("of the step", left=True),
        Heading("ranks", 3),
    ]
    table(headings, [row for depth, each in enumerate(shown) for row in _class_rows(each, depth, traffic, cluster)])
    full = [_name(each, cluster) for each in shown if each.busy > traffic.step_time]
    if full:
        say(f"Busy for longer than the step: {', '.join(full)}. The step is predicted too short for that.", indent="  ")
    idle = [_name(each, cluster) for each in traffic.classes if not each.by_axis]
    if idle:
        say(f"Without traffic: {', '.join(dict.fromkeys(idle))}.", indent="  ")
    uneven = [each for each in shown if len(each.levels) > 1]
    if uneven:
        say("Links of a kind that bear different amounts:")
    for each in uneven:
        say(f"  {_name(each, cluster)}: {'; '.join(_levels(each))}", indent="    ")


def _repeats(one: LinkClass, classes: Sequence[LinkClass]) -> bool:
    """Whether a class says nothing that the NICs do not: their PCIe slots, where these are as fast."""
    same = [each for each in classes if each.name == "nic" and each.pool == one.pool]
    return one.name == "nic_slot" and any(each.busy >= one.busy * (1 - 1e-9) for each in same)


def _class_rows(each: LinkClass, depth: int, traffic: PlanTraffic, cluster: Cluster) -> Iterator[list[str]]:
    """A class, and below it the axes where several load it."""
    first, *others = each.by_axis.items()
    axis = "" if others else f": {first[0]}"
    yield [
        f"{'  ' * (depth - 1)}{'└ ' if depth else ''}{_name(each, cluster)}{axis}",
        f"{each.links:,}",
        _number(each.capacity),
        _number(each.busiest),
        _number(each.mean),
        format_seconds(each.busy),
        _bar(each.busy / traffic.step_time),
        "" if others else three_digits(first[1].ranks),
    ]
    for name, share in each.by_axis.items() if others else ():
        busy = share.busiest / each.capacity
        yield [
            f"{'  ' * depth}    {name}",
            "",
            "",
            _number(share.busiest),
            _number(share.mean),
            format_seconds(busy) if busy else "-",
            f"{'':{BAR}} {busy / traffic.step_time:6.1%}",
            three_digits(share.ranks) if share.ranks else "-",
        ]


def _bar(share: float) -> str:
    return f"{'█' * min(round(share * BAR), BAR):·<{BAR}} {share:6.1%}"


def _name(each: LinkClass, cluster: Cluster) -> str:
    """With the node type where there are several, and the generation of the accelerators' own links."""
    kind = f" ({each.kind})" if each.name.startswith("gpu") and each.kind != "pcie" else ""
    several = len({pool.node.name for pool in cluster.pools}) > 1 and each.pool
    return f"{NAMES[each.name]}{kind}{f', {each.pool}' if several else ''}"


def _levels(each: LinkClass) -> Iterator[str]:
    for level in each.levels[:MOST_LEVELS]:
        yield f"{level.links:,} with {_number(level.bytes)} GB (such as {level.example})"
    rest = sum(level.links for level in each.levels[MOST_LEVELS:])
    if rest:
        yield f"{rest:,} with less"


def _print_axes(axes: Sequence[AxisTraffic], step: float) -> None:
    headings = [
        Heading("axis", left=True),
        Heading("ranks"),
        Heading("sent per\nGPU (GB)"),
        Heading("busy"),
        Heading("of the\nstep"),
        Heading("link", left=True),
    ]
    rows = [
        [
            each.axis,
            str(each.ranks),
            _number(each.sent),
            format_seconds(each.busy),
            f"{each.busy / step:.1%}",
            NAMES[each.link],
        ]
        for each in axes
    ]
    table(headings, rows)
    for each in axes:
        say(f"  {each.axis}: {each.words}", indent="    ")


def _print_hiding(hidings: Sequence[Hiding], step: float) -> None:
    headings = [
        Heading("axis", left=True),
        Heading("exposed"),
        Heading("of the\nstep"),
        Heading("link today", left=True),
        Heading("hidden from", left=True),
        Heading("under 1 % from", left=True),
        Heading("left at any\nbandwidth", 2),
    ]
    rows = [
        [
            each.name,
            format_seconds(each.exposed),
            f"{each.exposed / step:.1%}",
            f"{NAMES[link_class(each.limit.ends)]} {_number(each.limit.capacity)} GB/s",
            _faster(each.hidden),
            _faster(each.small),
            format_seconds(each.left),
        ]
        for each in hidings
    ]
    table(headings, rows)
    _say_what_hiding_means(hidings)


def _say_what_hiding_means(hidings: Sequence[Hiding]) -> None:
    """Of the words in the table those that occur."""
    if any(each.hidden and each.hidden.factor == 1 for each in hidings):
        say("now: no rank waits for it; what is exposed is what it takes from the compute beside it.", indent="  ")
    if any(each.hidden is None or each.small is None for each in hidings):
        say("never: some of it is latency, or has nothing to run beside.", indent="  ")
    if any(faster and faster.everywhere for each in hidings for faster in (each.hidden, each.small)):
        say("*: the links inside nodes as well as those between have to be so many times as fast.", indent="  ")


def _faster(enough: Faster | None) -> str:
    if enough is None:
        return "never"
    if enough.factor == 1:
        return "now"
    return f"{_number(enough.link)} GB/s (x{three_digits(enough.factor)}){'*' if enough.everywhere else ''}"


def _number(value: float) -> str:
    return three_digits(value / GB) if value else "-"
