"""How far a job scales, printed for people."""

from __future__ import annotations

from planner.answer.scaling import PAYS, NetworkScaling, ScalePoint, Scaling
from planner.cli.printing import Heading, say, table
from planner.quantities import three_digits


def print_scaling(found: Scaling) -> None:
    """Networks side by side at each size, then what the columns mean and where each network stops paying."""
    table(_headings(found), [_row(found, place) for place in range(len(found.networks[0].points))])
    say()
    reference = found.reference
    say(
        f"efficiency: tokens/s per GPU over the {float(reference.speed.tokens_per_s_per_gpu):,.0f} of "
        f"{found.reference_words} with {reference.question.workload.global_batch_size:,} sequences ({reference.name})",
        indent="  ",
    )
    say("waits: share of the step in which communication is exposed", indent="  ")
    for each in found.networks:
        say(f"{each.network}: {_pays(each)}; {each.crossover_words}", indent="  ")
    say()


def _headings(found: Scaling) -> list[Heading]:
    job = [Heading("GPUs", 1), Heading("batch\n(sequences)", 3), Heading("tokens per GPU\nand step", 3)]
    days = found.reference.run is not None
    for each in found.networks:
        job += [Heading(f"{each.network}\ntokens/s", 1), Heading("effi-\nciency", 1), Heading("waits", 2)]
        job += [Heading("days", 2)] if days else []
        job += [Heading("plan", 4, left=True)]
    return job


def _row(found: Scaling, place: int) -> list[str]:
    first = found.networks[0].points[place]
    seq_len = found.reference.question.workload.seq_len
    cells = [
        f"{first.gpus:,}",
        f"{first.global_batch_size:,}",
        f"{first.global_batch_size * seq_len / first.gpus:,.0f}",
    ]
    days = found.reference.run is not None
    return cells + [cell for each in found.networks for cell in _cells(each.points[place], days=days)]


def _cells(point: ScalePoint, *, days: bool) -> list[str]:
    ranked = point.ranked
    if ranked is None:
        return ["-", "", "", *([""] if days else []), "nothing fits"]
    run = ranked.run
    return [
        f"{float(ranked.speed.tokens_per_s):,.0f}",
        f"{point.efficiency:.0%}",
        f"{point.exposed:.0%}",
        *([three_digits(run.days)] if days and run else []),
        ranked.name,
    ]


def _pays(each: NetworkScaling) -> str:
    """Up to where doubling pays."""
    fit = [point.gpus for point in each.points if point.ranked]
    if not fit:
        return "nothing fits"
    if each.pays == fit[-1]:
        return f"every doubling up to {each.pays:,} GPUs makes it at least {PAYS:g} times as fast"
    return f"pays up to {each.pays:,} GPUs: {2 * each.pays:,} are less than {PAYS:g} times as fast"
