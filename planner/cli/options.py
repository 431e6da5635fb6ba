"""Options that commands share, each declared once: what is asked, and how the answer is printed."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from planner.answer.choices import OBJECTIVES, OFFLOADS, Choices
from planner.cli.printing import note
from planner.spec.workload import ATTENTION_BACKENDS, METHODS, OPTIMIZERS, PRECISIONS, STATES

if TYPE_CHECKING:
    from planner.answer.question import Question
    from planner.answer.ranked_plan import RankedPlan

F = TypeVar("F", bound=Callable[..., Any])


def _one_of(names: Sequence[str]) -> click.Choice[str]:
    return click.Choice(names, case_sensitive=False)


def _joined(_context: click.Context, _parameter: click.Parameter, given: tuple[str, ...]) -> str | None:
    """Several `--fix` as one, so that none is passed over."""
    return ",".join(given) if given else None


model_argument = click.argument("model")
cluster_argument = click.argument("cluster")
optional_model_argument = click.argument("model", required=False)
optional_cluster_argument = click.argument("cluster", required=False)

network_option = click.option(
    "--network", metavar="NAME[xNICS]", help="Replace the fabric between nodes, such as ib-ndr400x8."
)

WORKLOAD_OPTIONS = (
    network_option,
    click.option("--seq-len", type=int, metavar="TOKENS", help="Tokens per sequence [4096, or the model's maximum]."),
    click.option(
        "--global-batch-size", metavar="N|NMtok", help="Sequences per step, or tokens as 4Mtok [by cluster size]."
    ),
    click.option("--precision", type=_one_of(PRECISIONS), help="Of matrix products [bf16 where there is one]."),
    click.option("--state", type=_one_of(STATES), help="fp32 master weights and states, or all 16 bits [mixed]."),
    click.option("--optimizer", type=_one_of(OPTIMIZERS), help="[adamw]"),
    click.option("--method", type=_one_of(METHODS), help="Train all weights or adapters [full]."),
    click.option("--lora-rank", type=int, metavar="R", help="Of the adapters [16]."),
    click.option("--attention", type=_one_of(ATTENTION_BACKENDS), help="Kernel [flash]."),
    click.option("--offload", type=_one_of(OFFLOADS), help="What rests in host memory [none]."),
    click.option("--tokens", metavar="N", help="Of the whole run, such as 1T: adds days, GPU-hours and USD."),
    click.option("--usd-per-gpu-hour", type=float, metavar="USD", help="Price [the catalogue's range]."),
)

SOFTWARE_OPTIONS = (
    click.option(
        "--target", metavar="NAME", help="What will run the plan: searches what it can express; implies a stack."
    ),
    click.option("--stack", metavar="NAME", help="Software stack whose conventions and efficiencies count."),
    click.option("--profile", metavar="NAME|FILE", help="Efficiency profile, as accelerator/stack or a file."),
)

SEARCH_OPTIONS = (
    click.option(
        "--fix",
        metavar="K=V,...",
        multiple=True,
        callback=_joined,
        help="Restrict the search, such as tp=8,pp=1..4,recompute=full.",
    ),
    click.option("--objective", type=_one_of(OBJECTIVES), help="What the best plan is best at [throughput]."),
)


def names_given(_context: click.Context, _parameter: click.Parameter, given: str | None) -> tuple[str, ...] | None:
    """Names with commas between them; None where the option is not given."""
    return None if given is None else tuple(name.strip() for name in given.split(",") if name.strip())


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON with a schema_version.")
quiet_option = click.option("--quiet", "-q", is_flag=True, help="No notes on stderr.")


def question_options(function: F) -> F:
    """MODEL, CLUSTER and every option that makes up a question, as `Choices` names them."""
    return model_argument(cluster_argument(_options(function)))


def model_options(function: F) -> F:
    """As `question_options` without CLUSTER, for commands that try several."""
    return model_argument(_options(function))


def question_or_plan_options(function: F) -> F:
    """As `question_options`, with CLUSTER left out where MODEL is a plan.json."""
    return model_argument(optional_cluster_argument(_options(function)))


def simulated_options(function: F) -> F:
    """As `question_or_plan_options`, with MODEL left out too where a table is played."""
    return optional_model_argument(optional_cluster_argument(_options(function)))


def _options(function: F) -> F:
    for option in reversed((*WORKLOAD_OPTIONS, *SOFTWARE_OPTIONS, *SEARCH_OPTIONS, quiet_option, json_option)):
        function = option(function)
    return function


def compared_options(function: F) -> F:
    """Every option of a question, with commas between several values; each `--fix` is a text of its own."""
    declared: list[click.Option] = _options(lambda: None).__click_params__  # type: ignore[attr-defined]
    function.__dict__.setdefault("__click_params__", []).extend(_several(option) for option in declared)
    return function


def _several(option: click.Option) -> click.Option:
    """The option as one that takes several values as text; a switch as it is."""
    if option.is_flag:
        return option
    names = "|".join(option.type.choices) if isinstance(option.type, click.Choice) else str(option.metavar)
    several = copy(option)
    several.type, several.callback = click.STRING, None
    several.metavar = names if option.multiple else f"{names},..."
    return several


def question_from(asked: dict[str, Any], *, quiet: bool) -> Question:
    """The question that the options make; what was assumed and noted goes to stderr."""
    from planner.answer.question import ask

    choices = {name: value for name, value in asked.items() if name not in ("model", "cluster")}
    question = ask(asked["model"], asked["cluster"], Choices(**choices))
    if not quiet:
        print_notes(question)
    return question


def plan_from(asked: dict[str, Any], *, quiet: bool) -> RankedPlan | None:
    """The plan of a plan.json (or of a folder with one) given in place of MODEL and CLUSTER; None where a question is.

    Raises UsageError where a cluster is missing, or options change what the file says.
    """
    if asked["cluster"] is not None:
        return None
    path = Path(asked["model"])
    if os.path.exists(path / "plan.json"):
        path /= "plan.json"
    if path.suffix != ".json":
        raise click.UsageError("missing CLUSTER, such as 2xdgx-h100")
    given = [name for name, value in asked.items() if value is not None and name != "model"]
    if given:
        raise click.UsageError(f"a plan.json answers its own question: leave out --{given[0].replace('_', '-')}")
    from planner.answer.plan_files import read_plan

    ranked = read_plan(path)
    if not quiet:
        print_notes(ranked.question)
    return ranked


def print_notes(*questions: Question) -> None:
    """What is noteworthy and what was assumed, each said once, on stderr."""
    for remark in dict.fromkeys(remark for each in questions for remark in each.notes):
        note(f"note: {remark}")
    assumed = dict.fromkeys(text for each in questions for text in each.assumed)
    if assumed:
        note(f"assumed: {'; '.join(assumed)}")
