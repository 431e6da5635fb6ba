"""The view: a value for every control, and the link that says them all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import streamlit as st

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
READ, PAGE, BAD = "_link_read", "_page", "_link_bad"


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
        "schedule": Field("", _one_of(choices["schedule"]), "time"),
        "jitter": Field(0, _whole(0, 30), "time"),
        "launch_trainer": Field("pytorch", _one_of(choices["trainer"]), "plan"),
        "launch_with": Field("torchrun", _one_of(choices["launcher"]), "plan"),
    }


def begin(page: str) -> None:
    """At the start of a run: read the link once a session, give every value its default, and keep those of other pages.

    Streamlit forgets the value of a control that is not on the page; a value that is written again stays.
    """
    st.session_state[PAGE] = page
    if READ not in st.session_state:
        st.session_state[READ], st.session_state[BAD] = True, read_link(st.query_params.to_dict())
    for name, field in fields().items():
        st.session_state[name] = st.session_state.get(name, field.default)


def read_link(link: Mapping[str, str]) -> list[str]:
    """Take over the values of a link; what could not be understood, in words."""
    bad = []
    for name, text in link.items():
        field = fields().get(name)
        try:
            if field is None:
                raise ValueError(name)
            st.session_state[name] = field.read(text)
        except ValueError:
            bad.append(f"{name[:40]}={text[:40]}")
    return bad


def link() -> dict[str, str]:
    """What the address says of this view: the values that are not the defaults, those of other pages left out."""
    page, found = st.session_state[PAGE], {}
    for name, field in fields().items():
        value = st.session_state.get(name, field.default)
        if field.page in ("", page) and value not in (field.default, None):
            found[name] = ",".join(value) if isinstance(value, list) else str(value)
    return found


def write_link() -> None:
    """Put the view into the address."""
    if st.query_params.to_dict() != link():
        st.query_params.from_dict(link())


def value(name: str) -> Any:
    """A value of the view."""
    return st.session_state[name]
