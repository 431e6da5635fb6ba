"""Options that commands share, each declared once: what is asked, and how the answer is printed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from planner.spec.workload import ATTENTION_BACKENDS, METHODS, OPTIMIZERS, PRECISIONS, STATES

F = TypeVar("F", bound=Callable[..., Any])
Decorator = Callable[[F], F]

OBJECTIVES = ("throughput", "usd", "memory")
OFFLOADS = ("none", "optimizer", "all")

model_argument = click.argument("model")
cluster_argument = click.argument("cluster")

WORKLOAD_OPTIONS = (
    click.option("--network", metavar="NAME[xNICS]", help="Replace the fabric between nodes, such as ib-ndr400x8."),
    click.option("--seq-len", type=int, metavar="TOKENS", help="Tokens per sequence [4096, or the model's maximum]."),
    click.option(
        "--global-batch-size", metavar="N|NMtok", help="Sequences per step, or tokens as 4Mtok [by cluster size]."
    ),
    click.option("--precision", type=click.Choice(PRECISIONS), help="Of matrix products [bf16 where there is one]."),
    click.option("--state", type=click.Choice(STATES), help="fp32 master weights and states, or all 16 bits [mixed]."),
    click.option("--optimizer", type=click.Choice(OPTIMIZERS), help="[adamw]"),
    click.option("--method", type=click.Choice(METHODS), help="Train all weights or adapters [full]."),
    click.option("--lora-rank", type=int, metavar="R", help="Of the adapters [16]."),
    click.option("--attention", type=click.Choice(ATTENTION_BACKENDS), help="Kernel [flash]."),
    click.option("--offload", type=click.Choice(OFFLOADS), help="What rests in host memory [none]."),
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
    click.option("--fix", metavar="K=V,...", help="Restrict the search, such as tp=8,pp=1..4,recompute=full."),
    click.option("--objective", type=click.Choice(OBJECTIVES), help="What the best plan is best at [throughput]."),
)

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON with a schema_version.")
quiet_option = click.option("--quiet", "-q", is_flag=True, help="No notes on stderr.")


def question_options(function: F) -> F:
    """MODEL, CLUSTER and every option that makes up a question, as `Choices` names them."""
    for option in reversed((*WORKLOAD_OPTIONS, *SOFTWARE_OPTIONS, *SEARCH_OPTIONS, quiet_option, json_option)):
        function = option(function)
    return model_argument(cluster_argument(function))
