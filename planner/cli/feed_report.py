"""What a plan has to be fed, printed for people."""

from __future__ import annotations

from collections.abc import Iterator

from planner.answer.feed import BatchAdvice, Feed, rate_words
from planner.cli.printing import Heading, say, table
from planner.quantities import format_count, format_seconds

UNKNOWN = "-"


def print_feed(found: Feed) -> None:
    """The whole answer on stdout."""
    say(found.sentence)
    say(f"plan: {found.ranked.words}", indent="  ")
    say()
    table([Heading("feeding", 1, left=True), Heading("needed", 1), Heading("there is", 1)], list(_rates(found)))
    say()
    headings = [Heading("launches", 1, left=True), Heading("step time", 1), Heading("of it waiting\nfor the host", 1)]
    rows = [[each.name, format_seconds(each.step_time), format_seconds(each.host)] for each in found.launching]
    table(headings, rows)
    say()
    for line in _advice(found.batch):
        say(line, indent="  ")


def _rates(found: Feed) -> Iterator[list[str]]:
    there = rate_words(found.storage)
    yield ["storage, each sample read once", rate_words(found.stored), there]
    if found.copies > 1:
        yield [f"storage, each read by {found.copies} GPUs", rate_words(found.stored * found.copies), there]
    bandwidth = rate_words(found.host_bandwidth) if found.host_bandwidth else UNKNOWN
    yield ["host memory, per node", rate_words(found.staged), bandwidth]
    yield ["loader workers, per node", UNKNOWN if found.workers is None else f"{found.workers:,}", ""]


def _advice(batch: BatchAdvice) -> Iterator[str]:
    if batch.factor and batch.rate_factor:
        rate = f": {batch.learning_rate:.3g}" if batch.learning_rate else ""
        factor = f"learning rate {batch.rate_factor:.3g} times{rate} ({batch.rule})"
        yield f"batch: {batch.factor:.3g} times as large; {factor}"
    if batch.fitted_tokens and batch.fitted_rate:
        here, best = format_count(batch.tokens_per_step), format_count(batch.fitted_tokens)
        yield (
            f"batch: {here} tokens per step here; {best} at a learning rate of {batch.fitted_rate:.2g} came out best "
            "for this compute (DeepSeek LLM, arXiv 2401.02954; a broad optimum)"
        )
    if not (batch.factor or batch.fitted_tokens):
        yield "batch: --from-batch says what another batch does to the learning rate, --tokens what was best elsewhere"
