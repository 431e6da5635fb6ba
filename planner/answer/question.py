"""A question in full: model, cluster, workload and software, with every default filled in and named."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from planner.answer.choices import OBJECTIVES, OFFLOADS, Choices
from planner.answer.software import check_method, profile_of, stack_of
from planner.catalogue.hardware import cluster as read_cluster
from planner.catalogue.hardware import network as named_network
from planner.catalogue.models import model as read_model
from planner.catalogue.prices import Price, usd_per_gpu_hour
from planner.errors import SpecError
from planner.quantities import format_count
from planner.search.fix import Values, parse_fix
from planner.spec.batch import read_batch_size, read_tokens, usual_batch_size
from planner.spec.cluster import Cluster
from planner.spec.codec import to_plain
from planner.spec.model import Model
from planner.spec.plan_file import ProfileReference
from planner.spec.profile import Profile
from planner.spec.stack import Stack
from planner.spec.workload import Workload, check_count

USUAL_SEQ_LEN = 4096
PREFERRED_PRECISIONS = ("bf16", "fp16", "fp32")
"""The first that the accelerator has a matrix peak for is assumed."""


@dataclass(frozen=True)
class Question:
    """Everything that an answer depends on. `assumed` names each value that the user did not give.

    `plan_file` is the plan.json that the question was read from, if it was.
    """

    model: Model
    cluster: Cluster
    workload: Workload
    stack: Stack
    profile: Profile
    choices: Choices = field(default_factory=Choices)
    model_text: str = ""
    cluster_text: str = ""
    assumed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    plan_file: str = ""

    @property
    def objective(self) -> str:
        """What the best plan is best at."""
        return self.choices.objective or "throughput"

    @property
    def fix(self) -> dict[str, Values]:
        """What the user holds fixed, `--offload` included: field -> allowed values."""
        fixed = parse_fix(self.choices.fix or "")
        if self.choices.offload is None:
            return fixed
        return parse_fix(f"offload={self.choices.offload}") | fixed

    @cached_property
    def price(self) -> Price | None:
        """USD per accelerator and hour: the user's, or the catalogue's range; None when unknown."""
        own = self.workload.usd_per_gpu_hour
        return Price(own, own) if own else usd_per_gpu_hour(self.cluster)

    def as_dict(self) -> dict[str, Any]:
        """The inputs, for JSON."""
        model, cluster, node = self.model, self.cluster, self.cluster.node
        return {
            "model": {
                "name": model.name,
                "parameters": model.parameters,
                "active_parameters": model.active_parameters,
                "layers": model.num_hidden_layers,
            },
            "cluster": {
                "name": cluster.name,
                "gpus": cluster.world_size,
                "nodes": cluster.num_nodes,
                "node": node.name,
                "accelerator": cluster.accelerator.name,
                "network": node.fabric.name,
                "usd_per_gpu_hour": asdict(self.price) if self.price else None,
            },
            "workload": to_plain(self.workload),
            "stack": self.stack.name,
            "profile": to_plain(ProfileReference.of(self.profile)),
            "objective": self.objective,
            "fix": self.choices.fix,
            "peak_tflops_per_gpu": float(cluster.accelerator.peak_flops(self.workload.precision)) / 1e12,
        }

    def command(self, verb: str = "recommend") -> str:
        """The whole question as one command line, defaults included; of a plan.json, the one that judges it again."""
        if self.plan_file and verb != "recommend":
            return shlex.join(["planner", verb, self.plan_file])
        return shlex.join(["planner", verb, self.model_text, self.cluster_text, *self._options()])

    def _options(self) -> Iterator[str]:
        workload, chosen = self.workload, self.choices
        lora = workload.lora_rank if workload.method != "full" else None
        values = {
            "network": chosen.network,
            "seq-len": workload.seq_len,
            "global-batch-size": workload.global_batch_size,
            "precision": workload.precision,
            "state": workload.state,
            "optimizer": workload.optimizer,
            "method": workload.method,
            "lora-rank": lora,
            "attention": workload.attention,
            "offload": chosen.offload or "none",
            "tokens": chosen.tokens,
            "usd-per-gpu-hour": chosen.usd_per_gpu_hour,
            "target": chosen.target,
            "stack": self.stack.name,
            "profile": chosen.profile,
            "objective": self.objective,
            "fix": chosen.fix,
        }
        for name, value in values.items():
            if value is not None:
                yield from (f"--{name}", str(value))


def ask(model: Model | str | Path, cluster: Cluster | str, choices: Choices | None = None) -> Question:
    """The question with every default filled in.

    `model` is a catalogue name, a config.json or a folder that holds one; `cluster` is `4xdgx-h100`, `2xrtx-4090` or a
    cluster TOML; both may be records. Raises SpecError or FileFormatError.
    """
    chosen = choices or Choices()
    _check_choice("objective", chosen.objective, OBJECTIVES)
    _check_choice("offload", chosen.offload, OFFLOADS)
    _check_used(chosen)
    spec = model if isinstance(model, Model) else read_model(str(model))
    machines = machines_of(cluster, chosen.network)
    workload, assumed = _workload(spec, machines, chosen)
    stack = stack_of(chosen.target, chosen.stack)
    check_method(stack, workload.method)
    if not (chosen.stack or chosen.target):
        assumed = (*assumed, f"stack {stack.name}")
    profile = profile_of(machines, stack, chosen.profile)
    question = Question(
        model=spec,
        cluster=machines,
        workload=workload,
        stack=stack,
        profile=profile,
        choices=chosen,
        model_text=spec.name if isinstance(model, Model) else str(model),
        cluster_text=machines.name if isinstance(cluster, Cluster) else cluster,
        assumed=assumed,
        notes=(*machines.notes, *_notes(spec, workload), *profile.notes),
    )
    return replace(question, notes=(*question.notes, *_price_notes(question)))


def machines_of(cluster: Cluster | str, network: str | None = None) -> Cluster:
    """The cluster, with another network between its nodes if one is named. Raises SpecError or FileFormatError."""
    machines = cluster if isinstance(cluster, Cluster) else read_cluster(cluster)
    return machines if network is None else machines.with_fabric(named_network(network, where="--network"))


def _workload(model: Model, cluster: Cluster, chosen: Choices) -> tuple[Workload, tuple[str, ...]]:
    """The job, and what was assumed of it."""
    ranks = cluster.world_size
    seq_len = chosen.seq_len or min(USUAL_SEQ_LEN, model.max_seq_len or USUAL_SEQ_LEN)
    if chosen.seq_len is not None:
        check_count("seq_len", chosen.seq_len)
    batch = (
        usual_batch_size(seq_len, ranks)
        if chosen.global_batch_size is None
        else read_batch_size(str(chosen.global_batch_size), seq_len=seq_len, world_size=ranks)
    )
    fields: dict[str, Any] = {
        "precision": chosen.precision or _usual_precision(cluster),
        "state": chosen.state,
        "optimizer": chosen.optimizer,
        "method": chosen.method,
        "lora_rank": chosen.lora_rank,
        "attention": chosen.attention,
        "tokens": None if chosen.tokens is None else read_tokens(str(chosen.tokens)),
        "usd_per_gpu_hour": chosen.usd_per_gpu_hour,
    }
    job = Workload(batch, seq_len, **{name: value for name, value in fields.items() if value is not None})
    check_precision(job, cluster)
    return job, tuple(_assumed(job, chosen))


def _assumed(job: Workload, chosen: Choices) -> Iterator[str]:
    if chosen.seq_len is None:
        yield f"sequence length {job.seq_len:,}"
    if not str(chosen.global_batch_size or "").isdigit():
        yield f"global batch {job.global_batch_size:,} sequences = {job.tokens_per_step:,} tokens"
    for name in ("precision", "state", "optimizer", "method", "attention"):
        if getattr(chosen, name) is None:
            yield f"{name} {getattr(job, name)}"
    if job.method != "full" and chosen.lora_rank is None:
        yield f"LoRA rank {job.lora_rank}"
    if chosen.offload is None:
        yield "no offload"


def _usual_precision(cluster: Cluster) -> str:
    peaks = cluster.accelerator.peak
    return next((name for name in PREFERRED_PRECISIONS if name in peaks), next(iter(peaks)))


def check_precision(job: Workload, cluster: Cluster) -> None:
    """Raise SpecError where the cluster's accelerator has no matrix peak in the job's precision."""
    peaks = cluster.accelerator.peak
    if job.precision not in peaks:
        raise SpecError(
            f"{cluster.accelerator.name} has no {job.precision} matrix peak; it has: {', '.join(peaks)}",
            where="--precision",
        )


def _check_choice(name: str, value: str | None, known: tuple[str, ...]) -> None:
    if value is not None and value not in known:
        raise SpecError(f"unknown {name} {value!r}; known: {', '.join(known)}", where=f"--{name}")


def _price_notes(question: Question) -> Iterator[str]:
    """Where money is asked for and no price is known."""
    if question.price is None and (question.workload.tokens or question.objective == "usd"):
        yield f"no price of {question.cluster.accelerator.name} is known: give one with --usd-per-gpu-hour"


def _check_used(chosen: Choices) -> None:
    """Raise SpecError for a choice that would be passed over without a word."""
    if chosen.usd_per_gpu_hour == 0:
        raise SpecError("must be above zero; without it the catalogue's price is used", where="--usd-per-gpu-hour")
    if chosen.lora_rank is not None and chosen.method in (None, "full"):
        raise SpecError("needs --method lora or qlora", where="--lora-rank")


def _notes(model: Model, workload: Workload) -> Iterator[str]:
    yield f"read {format_count(model.parameters)} parameters from {model.name}"
    if model.max_seq_len and workload.seq_len > model.max_seq_len:
        yield f"sequences of {workload.seq_len:,} are longer than the {model.max_seq_len:,} positions of {model.name}"
    if model.left_out:
        yield f"not modelled: {', '.join(model.left_out)}"
    yield from model.notes
