"""Every value that a view has: what it is without a choice, and how a link says it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from app.claims import CLAIMS
from planner import choice_names, listing, model_names

OWN = "own file"
"""The choice of a model or hardware that was uploaded or pasted."""
LONGEST_TEXT, LONGEST_FILE = 400, 24_000
"""Characters of a value in a link, and of a packed file."""
DIALS: Mapping[str, tuple[str, ...]] = {
    "tp": ("1", "2", "4", "8", "16"),
    "pp": ("1", "2", "4", "8", "16", "32"),
    "cp": ("1", "2", "4", "8", "16"),
    "ep": ("1", "2", "4", "8", "16", "32", "64"),
    "micro_batch_size": ("1", "2", "4", "8", "16"),
    "recompute": ("none", "selective", "full"),
    "sharding": ("none", "zero1", "zero2", "zero3", "zero3_keep"),
    "seq_len": ("1024", "2048", "4096", "8192", "16384", "32768", "65536", "131072", "262144", "1048576"),
}
"""What can be turned on the Memory page, as `--fix` takes it."""
PANELS: Mapping[str, str] = {
    "map": "Map of sizes",
    "scaling": "Scaling",
    "fewest": "Fewest GPUs",
    "largest": "Largest",
    "run": "Whole run",
}
"""Panels of the page What fits."""
CHANGES = (
    "nic=2x",
    "link=2x",
    "compute=2x",
    "memory-bandwidth=2x",
    "memory=40GB",
    "seq-len=2x",
    "nodes=2x",
    "nic=0.5x",
)
"""Changes that the Compare page offers; others can be typed."""
MAP_ROWS = ("sequence length (tokens)", "global batch (sequences)")
MAP_COLOURS = ("tokens/s per GPU", "MFU (%)", "step time (s)", "memory per GPU (GiB)", "USD per Mtok")


@dataclass(frozen=True)
class Field:
    """One value: what it is without a choice, how a link's text is read (ValueError if wrong), and whose page it is."""

    default: Any
    read: Callable[[str], Any]
    page: str = ""


def _text(longest: int = LONGEST_TEXT) -> Callable[[str], str]:
    def read(text: str) -> str:
        if len(text) > longest or not text.isprintable():
            raise ValueError(text)
        return text

    return read


def _whole(low: int, high: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        value = int(text)
        if not low <= value <= high:
            raise ValueError(text)
        return value

    return read


def _real(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1e6:
        raise ValueError(text)
    return value


def _one_of(names: Iterable[str]) -> Callable[[str], str]:
    known = frozenset(names)

    def read(text: str) -> str:
        if text not in known:
            raise ValueError(text)
        return text

    return read


def _some_of(names: Iterable[str]) -> Callable[[str], list[str]]:
    known = frozenset(names)

    def read(text: str) -> list[str]:
        found = [each for each in text.split(",") if each]
        if not known.issuperset(found):
            raise ValueError(text)
        return found

    return read


def _value_of(values: tuple[Any, ...]) -> Callable[[str], Any]:
    known = {str(each): each for each in values}

    def read(text: str) -> Any:
        if text not in known:
            raise ValueError(text)
        return known[text]

    return read


def _texts(text: str) -> list[str]:
    return [each for each in _text()(text).split(",") if each][:12]


@cache
def names(kind: str) -> tuple[str, ...]:
    """The catalogue's names of a kind: models, gpus, nodes, networks, stacks."""
    return tuple(model_names()) if kind == "models" else tuple(row["name"] for row in listing(kind).as_dicts())


@cache
def hardware() -> tuple[str, ...]:
    """Node types, then accelerators."""
    return (*names("nodes"), *names("gpus"))


@cache
def fields() -> Mapping[str, Field]:
    """Every value of the view, the question's first."""
    choices = choice_names()
    named = {name: Field("", _one_of(choices[name])) for name in choices if name not in ("trainer", "launcher")}
    return {
        "model": Field("llama-3.1-8b", _one_of((*names("models"), OWN))),
        "model_file": Field("", _text(LONGEST_FILE)),
        "hardware": Field("dgx-h100", _one_of((*hardware(), OWN))),
        "count": Field(2, _whole(1, 100_000)),
        "cluster_file": Field("", _text(LONGEST_FILE)),
        "network": Field("", _one_of(names("networks"))),
        "seq_len": Field(None, _whole(1, 2**24)),
        "batch": Field("", _text(40)),
        **named,
        "lora_rank": Field(None, _whole(1, 2**16)),
        "target": Field("", _one_of((*choices["trainer"], *choices["launcher"]))),
        "stack": Field("", _one_of(names("stacks"))),
        "tokens": Field("", _text(40)),
        "price": Field(None, _real),
        "fix": Field("", _text()),
        "plan": Field(1, _whole(1, 10)),
        **_page_fields(),
    }


def _page_fields() -> dict[str, Field]:
    """Values of single pages, by the page's name in the address."""
    choices = choice_names()
    return {
        **{f"dial_{name}": Field("as the plan", _one_of(values), "memory") for name, values in DIALS.items()},
        "panel": Field("map", _one_of(PANELS), "fits"),
        "map_rows": Field(MAP_ROWS[0], _one_of(MAP_ROWS), "fits"),
        "map_colour": Field(MAP_COLOURS[0], _one_of(MAP_COLOURS), "fits"),
        "networks": Field(["ib-ndr400", "roce-100", "tcp-100"], _some_of(names("networks")), "fits"),
        "sizes": Field("8..256", _one_of(("8..64", "8..256", "8..1024", "8..4096", "8..16384")), "fits"),
        "batch_grows": Field("strong", _one_of(("strong", "weak")), "fits"),
        "compared_gpus": Field(["h100-sxm", "a100-sxm-80gb", "rtx-4090"], _some_of(names("gpus")), "fits"),
        "days": Field(None, _real, "fits"),
        "solve": Field("seq-len", _one_of(("seq-len", "micro-batch", "global-batch", "params")), "fits"),
        "accuracy_panel": Field("runs", _one_of(("runs", "logs", "profile", "claims")), "accuracy"),
        "steps_left": Field(False, lambda text: text == "True", "accuracy"),
        "quantity": Field("step time (s)", _one_of(("step time (s)", "peak memory (GiB)")), "accuracy"),
        "claim": Field("pipeline", _one_of(CLAIMS), "accuracy"),
        **{
            f"claim_{name}_{each}": Field(dial.usual, _value_of(dial.values), "accuracy")
            for name, claim in CLAIMS.items()
            for each, dial in claim.dials.items()
        },
        "mode": Field("sides", _one_of(("sides", "what_if")), "compare"),
        "other_clusters": Field("", _text(), "compare"),
        "other_networks": Field([], _some_of(names("networks")), "compare"),
        "other_models": Field([], _some_of(names("models")), "compare"),
        "other_methods": Field([], _some_of(choices["method"]), "compare"),
        "other_stacks": Field([], _some_of(names("stacks")), "compare"),
        "other_fixes": Field("", _text(), "compare"),
        "changes": Field(list(CHANGES[:6]), _texts, "compare"),
        "schedule": Field("", _one_of(choices["schedule"]), "time"),
        "jitter": Field(0, _whole(0, 30), "time"),
        "launch_trainer": Field("pytorch", _one_of(choices["trainer"]), "plan"),
        "launch_with": Field("torchrun", _one_of(choices["launcher"]), "plan"),
    }
