"""What `planner validate --kernels` prints."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from planner.cli.printing import Heading, note, print_json, say, table
from planner.validate.kernels_report import KernelsReport, kernels_report
from planner.validate.scores import Score

WORDS = {
    "gemm": "matrix products",
    "attention": "attention kernels",
    "moe": "expert blocks",
    "nccl": "collectives of one node",
}
MOST_REASONS = 5


def validate_kernels(kind: str, path: Path, *, as_json: bool) -> None:
    """Score a table of timed kernels."""
    report = kernels_report(kind, path)
    if as_json:
        return print_json(report.as_dict())
    return _print_scores(report)


def _print_scores(report: KernelsReport) -> None:
    everything, reasons = report.score(), Counter(reason for reason in report.made.reason.tolist() if reason)
    say(_sentence(report, everything))
    for reason, count in reasons.most_common(MOST_REASONS):
        note(f"not predicted {count}: {reason}")
    if len(reasons) > MOST_REASONS:
        note(f"not predicted {sum(n for _, n in reasons.most_common()[MOST_REASONS:])} for other reasons: see --json")
    if not everything.n:
        return
    headings = [Heading("by", left=True), Heading("", left=True), Heading("rows"), Heading("median\nerror (%)")]
    headings += [Heading("90th\npercentile (%)"), Heading("largest (%)", 2), Heading("bias (%)", 2)]
    lines = [["all", "", *_cells(everything)]]
    for name, found in report.divided().items():
        lines += [[name, value or "(none)", *_cells(one)] for value, one in found.items() if one.n]
    say()
    table(headings, lines)
    say("Error in time, absolute; bias is the median signed error, positive where predictions are too slow.")


def _sentence(report: KernelsReport, everything: Score) -> str:
    predicted = int((report.made.time > 0).sum())
    start = f"{predicted} of {len(report.rows)} {WORDS[report.rows.kind]} predicted, {everything.n} of them measured"
    if not everything.n:
        return f"{start}."
    return f"{start}: median error {100 * everything.median:.1f} %, 90th percentile {100 * everything.p90:.0f} %."


def _cells(one: Score) -> list[str]:
    far = [f"{100 * figure:.1f}" for figure in (one.median, one.p90)]
    return [str(one.n), *far, f"{100 * one.maximum:.0f}", f"{100 * one.bias:+.1f}"]
