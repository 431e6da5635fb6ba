"""Records of the planner's own trainer: one run after another in a file, each with what it was started with."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import groupby
from typing import Any

from planner.dumps.text import lines
from planner.errors import SpecError
from planner.spec.codec import from_plain
from planner.spec.model import Model, ModelKind
from planner.spec.plan import Plan
from planner.spec.workload import Workload

WORKLOAD = ("seq_len", "precision", "state", "optimizer", "method", "lora_rank", "attention")
MOST_LAYERS = 10_000
NORMS = 2
"""Vectors of the hidden size beside the matrices of a layer."""


@dataclass(frozen=True)
class OwnSettings:
    """What a run of the planner's own trainer was started with."""

    model: Model
    plan: Plan
    workload: Workload


def own_runs(text: str) -> list[str]:
    """The text of each run of a file to which several were appended; the whole where there is one."""
    found: list[list[str]] = [[]]
    for _, line in lines(text):
        if line.startswith('{"event": "start"') and any(each.startswith('{"event"') for each in found[-1]):
            found.append([])
        found[-1].append(line)
    return ["\n".join(each) + "\n" for each in found]


def own_settings(text: str) -> OwnSettings | None:
    """What the first run of a text was started with; None where nothing says it.

    Raises SpecError for settings that no plan can state, such as a schedule of the trainer's own.
    """
    start = next((each for each in _starts(text)), None)
    if start is None:
        return None
    try:
        return _settings(start)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise SpecError(f"the record's settings are of another kind: {str(error)[:120]}") from error


def _starts(text: str) -> Iterator[Mapping[str, Any]]:
    for _, line in lines(text):
        if line.startswith('{"event": "start"'):
            try:
                settings = json.loads(line).get("settings")
            except (ValueError, RecursionError):
                continue
            if isinstance(settings, dict):
                yield settings


def _settings(data: Mapping[str, Any]) -> OwnSettings:
    plan = from_plain(Plan, data["plan"], where="settings.plan")
    job = {name: data[name] for name in WORKLOAD}
    workload = from_plain(Workload, {"global_batch_size": int(plan.global_batch_size), **job}, where="settings")
    return OwnSettings(_model(data["model"]), plan, workload)


def _model(data: Mapping[str, Any]) -> Model:
    """The model that was built: the trainer's records are flat where the planner's are nested."""
    hidden, layers = data["hidden_size"], data["layers"]
    if not isinstance(layers, list) or not 1 <= len(layers) <= MOST_LAYERS:
        raise ValueError(f"1 to {MOST_LAYERS:,} layers are expected")
    known = {field.name for field in fields(Model)}
    kind = ModelKind.DECODER if data["causal"] else ModelKind.ENCODER
    plain = {name: value for name, value in data.items() if name in known and name != "layers"}
    runs = [{"count": len(list(run)), "layer": _layer(layer, hidden)} for layer, run in groupby(layers)]
    return from_plain(Model, {**plain, "layers": runs, "kind": kind.name.lower(), "other_parameters": hidden})


def _layer(data: Mapping[str, Any], hidden: int) -> dict[str, Any]:
    heads = ("num_attention_heads", "num_key_value_heads", "head_dim", "latent")
    dense, experts = data["intermediate_size"], data["num_experts"]
    expert = {"intermediate_size": data["expert_size"], "gated": data["expert_gated"]}
    return {
        "attention": {name: data[name] for name in heads},
        "mlp": {"intermediate_size": dense, "gated": data["gated"]} if dense else None,
        "experts": {"num_experts": experts, "experts_per_token": data["experts_per_token"], "expert": expert}
        if experts
        else None,
        "other_parameters": NORMS * hidden,
    }
