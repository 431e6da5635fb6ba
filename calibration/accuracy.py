"""How far off predictions of published runs are: writes docs/accuracy.md and its pictures.

    python -m calibration.accuracy TABLE.csv docs

Whole sources are left out in turn: what their (accelerator, stack) pairs learned is learned again from the other
sources, or taken from the nearest pair that is left. Halves of pairs are left out as `calibration.steps` does.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

from calibration.steps import campaigns, held_out, learned
from planner.catalogue.learned import Campaigns
from planner.catalogue.learned import learned as known_campaigns
from planner.catalogue.profiles import profile
from planner.estimate.records import StepTime
from planner.quantities import Column
from planner.spec.cluster import Cluster
from planner.spec.profile import Profile
from planner.validate.baseline import constant_utilization_time
from planner.validate.predict import Prediction, ProfileOf, predict
from planner.validate.report import Scores, report_of
from planner.validate.runs import MeasuredRun, read_runs
from planner.validate.scores import cross_rescaled, score

START, END = "<!-- written by calibration/accuracy.py -->", "<!-- end -->"
"""What the script writes stands between these; the rest of the page is kept."""
APART = ("nanotron",)
"""Stacks whose published timings are single iterations of untuned code."""
ABLATIONS: Mapping[str, tuple[str, ...]] = {
    "attention": ("attention",),
    "element-wise work": ("elementwise",),
    "head and loss": ("head",),
    "recomputation": ("recompute",),
    "tensor-parallel communication": ("tp_exposed",),
    "expert communication": ("ep_exposed",),
    "data-parallel communication": ("dp_exposed",),
    "pipeline bubble and sends": ("bubble", "pp_exposed"),
    "host": ("host",),
    "optimizer": ("optimizer",),
    "fixed time": ("fixed",),
}
"""Terms that are left out of the step time in turn."""


def main() -> None:
    """Read the arguments and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    parser.add_argument("docs", type=Path)
    arguments = parser.parse_args()
    runs = [run for run in read_runs(arguments.table) if run.complete and run.configuration]
    page = arguments.docs / "accuracy.md"
    before, rest = page.read_text(encoding="utf-8").split(START)
    text = "\n".join(_sections(runs, arguments.docs / "accuracy.png"))
    page.write_text(f"{before}{START}\n{text}\n{END}{rest.split(END)[1]}", encoding="utf-8")


def _sections(runs: Sequence[MeasuredRun], picture: Path) -> Iterator[str]:
    timed = [run for run in runs if run.measured_step_time and not run.oom]
    unseen, alone = halves(timed), sources_left_out(timed)
    yield from _by_source(runs, timed, unseen, alone)
    yield from _by_level(timed, alone)
    yield from _ablations(timed)
    draw(timed, unseen, picture)
    yield "![Predicted against measured step time of held-out runs, by source](accuracy.png)"


def halves(runs: Sequence[MeasuredRun]) -> Column:
    """Step times of each half of every pair's runs as the other half teaches; 0 where that is too few."""
    place = {id(run): row for row, run in enumerate(runs)}
    times = np.zeros(len(runs))
    for rows in campaigns(runs).values():
        times[[place[id(run)] for run in rows]] = held_out(rows)
    return times


def sources_left_out(runs: Sequence[MeasuredRun]) -> list[Prediction]:
    """Predictions of every run from what all other sources teach."""
    found: dict[int, Prediction] = {}
    for source in sorted({run.source_id for run in runs}):
        rows = [row for row, run in enumerate(runs) if run.source_id == source]
        others = without([run for run in runs if run.source_id != source], source)
        found |= dict(zip(rows, predict([runs[row] for row in rows], using(others)), strict=True))
    return [found[row] for row in range(len(runs))]


def without(runs: Sequence[MeasuredRun], source: str) -> Campaigns:
    """What is learned where one source is not among the runs: pairs that it had a part in are fitted again."""
    left = dict(known_campaigns())
    rows = campaigns(runs)
    for key in [key for key, one in left.items() if source in one.sources]:
        del left[key]
        if key in rows:
            left[key] = learned(rows[key])[0]
    return left


def using(known: Campaigns) -> ProfileOf:
    """Profiles that rest on some campaigns."""

    def profile_of(cluster: Cluster, stack_name: str) -> Profile:
        return profile(cluster.accelerator, stack_name, fabric=cluster.node.fabric, campaigns=known)

    return profile_of


def _by_source(
    runs: Sequence[MeasuredRun], timed: Sequence[MeasuredRun], unseen: Column, alone: Sequence[Prediction]
) -> Iterator[str]:
    """One line a source: as shipped, the half held out, the whole source left out, memory."""
    report = report_of(runs)
    by_source = report.divided("source_id")
    measured, names = _measured(timed), np.array([run.source_id for run in timed])
    left = np.array([made.step_time for made in alone])
    tuned = np.array([run.stack not in APART for run in timed])
    constant = cross_rescaled(
        measured,
        np.array([constant_utilization_time(run) for run in timed]),
        [(run.accelerator, run.stack) for run in timed],
        [run.id for run in timed],
    )
    yield (
        "| source | runs | as shipped | half held out | source left out | within 80 % | constant utilisation | "
        "memory readings | peak memory | within 80 % |"
    )
    yield "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|"

    def line(name: str, mask: Column, scores: Scores) -> str:
        cells = [_figures(measured[mask], times[mask]) for times in (unseen, left)]
        inside = _inside(measured, alone, mask)
        memory = f"{100 * scores.memory.median:.1f} / {100 * scores.memory.p90:.0f} %" if scores.memory.n else ""
        covered = f"{100 * scores.memory_coverage:.0f} %" if scores.memory.n else ""
        shipped = f"{100 * scores.time.median:.1f} / {100 * scores.time.p90:.0f} %" if scores.time.n else ""
        return (
            f"| {name} | {scores.time.n or ''} | {shipped} | {' | '.join(cells)} | {inside} | "
            f"{_figures(measured[mask], constant[mask])} | {scores.memory.n or ''} | {memory} | {covered} |"
        )

    for name, scores in sorted(by_source.items(), key=lambda item: -max(item[1].time.n, item[1].memory.n)):
        if scores.time.n or scores.memory.n:
            yield line(name, names == name, scores)
    yield line("all", np.ones(len(timed), dtype=bool), report.scores())
    yield line(f"all but {', '.join(APART)}", tuned, report.scores(lambda row: row.run.stack not in APART))
    yield ""


def _by_level(timed: Sequence[MeasuredRun], alone: Sequence[Prediction]) -> Iterator[str]:
    """Errors with whole sources left out, by what the prediction then rests on."""
    yield "With whole sources left out, by what the prediction then rests on:"
    yield ""
    yield "| level | runs | sources | step time | within 80 % |"
    yield "|---|---:|---:|---:|---:|"
    measured, levels = _measured(timed), np.array([made.level for made in alone])
    left, tuned = np.array([made.step_time for made in alone]), np.array([run.stack not in APART for run in timed])
    for level in ("calibrated", "transferred", "datasheet"):
        mask = (levels == level) & tuned
        sources = len({run.source_id for run, chosen in zip(timed, mask, strict=True) if chosen})
        figures, inside = _figures(measured[mask], left[mask]), _inside(measured, alone, mask)
        yield f"| {level} | {mask.sum()} | {sources} | {figures} | {inside} |"
    yield ""


@dataclass(frozen=True)
class Terms:
    """Measured and predicted step times of runs, with each term of the prediction."""

    measured: Column
    total: Column
    terms: Mapping[str, Column]
    groups: Sequence[object]
    ids: Sequence[str]

    def without(self, names: Sequence[str]) -> Column:
        """Times without some terms, each pair scaled by one factor from its other half."""
        left = self.total - sum((self.terms[name] for name in names), start=np.zeros(len(self.total)))
        return cross_rescaled(self.measured, np.maximum(left, 1e-9), self.groups, self.ids)


def _ablations(timed: Sequence[MeasuredRun]) -> Iterator[str]:
    chosen = [run for run in timed if run.stack not in APART]
    made = predict(chosen)
    names = [field.name for field in fields(StepTime)]
    terms = Terms(
        measured=_measured(chosen),
        total=np.array([each.step_time for each in made]),
        terms={name: np.array([_term(each, name) for each in made]) for name in names},
        groups=[(run.accelerator, run.stack) for run in chosen],
        ids=[run.id for run in chosen],
    )
    yield "Without a term, each pair scaled anew by one factor (from the half of its runs that is not scored):"
    yield ""
    yield "| left out | step time |"
    yield "|---|---:|"
    yield f"| nothing | {_figures(terms.measured, terms.without(()))} |"
    for name, parts in ABLATIONS.items():
        yield f"| {name} | {_figures(terms.measured, terms.without(parts))} |"
    yield ""


def _term(made: Prediction, name: str) -> float:
    values = getattr(made.times, name, 0.0)
    return float(values[made.row] if np.ndim(values) else values)


def _measured(runs: Sequence[MeasuredRun]) -> Column:
    return np.array([run.measured_step_time for run in runs])


def _figures(measured: Column, predicted: Column) -> str:
    one = score(measured, predicted)
    return f"{100 * one.median:.1f} / {100 * one.p90:.0f} %" if one.n else ""


def _inside(measured: Column, made: Sequence[Prediction], mask: Column) -> str:
    """Share of the measured times within their intervals."""
    known = [
        interval.low <= time <= interval.high
        for time, each, chosen in zip(measured, made, mask, strict=True)
        if chosen and (interval := each.step_time_interval)
    ]
    return f"{100 * np.mean(known):.0f} %" if known else ""


def draw(runs: Sequence[MeasuredRun], predicted: Column, path: Path) -> None:
    """A picture of predicted over measured by source, of the runs that were held out; tuned stacks only."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    shown = [(run, time) for run, time in zip(runs, predicted, strict=True) if time > 0 and run.stack not in APART]
    sources = sorted(
        {run.source_id for run, _ in shown}, key=lambda name: -sum(run.source_id == name for run, _ in shown)
    )
    figure, axes = pyplot.subplots(figsize=(8, 0.3 * len(sources) + 1.2), layout="constrained")
    for place, source in enumerate(sources):
        ratio = [time / run.measured_step_time for run, time in shown if run.source_id == source]
        jitter = np.linspace(-0.3, 0.3, len(ratio)) if len(ratio) > 1 else [0.0]
        axes.scatter(ratio, place + np.array(jitter), s=6, alpha=0.5, color="#0072b2", linewidths=0)
    for bound, style in ((1.0, "-"), (0.9, ":"), (1.1, ":")):
        axes.axvline(bound, color="#555555", linestyle=style, linewidth=0.8)
    axes.set(
        xscale="log",
        xlim=(0.4, 2.5),
        ylim=(len(sources) - 0.5, -0.5),
        xlabel="predicted / measured step time, held out",
    )
    axes.set_xticks([0.5, 0.7, 0.9, 1.0, 1.1, 1.4, 2.0], ["0.5", "0.7", "0.9", "1", "1.1", "1.4", "2"], minor=False)
    axes.minorticks_off()
    axes.set_yticks(range(len(sources)), sources)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


if __name__ == "__main__":
    main()
