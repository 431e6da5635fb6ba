"""Which layers have a sliding window and which are mixtures of experts."""

from __future__ import annotations

import reprlib

from planner.errors import SpecError
from planner.spec.families.fields import Fields

FULL = frozenset(
    {
        "full_attention",
        "attention",
        "global",
        "full",
        "global_attention",
        "indexed_attention",
        "deepseek_sparse_attention",
    }
)
SLIDING = frozenset({"sliding_attention", "sliding_window_attention", "local", "local_attention", "chunked_attention"})


def windows(f: Fields, length: int) -> list[int | None]:
    """For each layer the size of its sliding window, or None for full attention.

    Raises SpecError for layers of a kind that is not modelled (linear attention, state-space mixers).
    """
    named = f.words("layer_types", length)
    for word in named or ():
        if word not in FULL | SLIDING:
            raise SpecError(f"layers of type {reprlib.repr(word)} are not modelled yet", where=f.where)
    size = f.optional("sliding_window") if f.flag(f.family.sliding) else None
    if size is None:
        return [None] * length
    slides = [word in SLIDING for word in named] if named else _default_slides(f, length)
    return [size if slide else None for slide in slides]


def _default_slides(f: Fields, length: int) -> list[bool]:
    """Every n-th layer is full (n = 0: none is), and those before the first sliding layer."""
    every, first = f.count("full_attention_every", 0, least=0), f.count("first_sliding_layer", 0, least=0)
    return [i >= first and (every == 0 or (i + 1) % every != 0) for i in range(length)]


def sparse_layers(f: Fields, length: int) -> list[bool]:
    """For each layer whether it is a mixture of experts."""
    if not f.flag(f.family.experts) or f.count("num_experts", least=0) == 0:
        return [False] * length
    named = f.words("mlp_layer_types", length)
    if named:
        return [word != "dense" for word in named]
    listed = f.indices("sparse_layers")
    if listed is not None:
        return [i in listed for i in range(length)]
    first, last = f.count("first_dense_layers", 0, least=0), f.count("last_sparse_layer", -1, least=-1) % length
    if isinstance(f.value("sparse_every"), list):
        return [flag > 0 for flag in f.numbers("sparse_every", length)]
    every, dense = f.count("sparse_every", 1), f.indices("mlp_only_layers") or frozenset()
    offset = f.family.sparse_offset
    return [first <= i <= last and (i + offset) % every == 0 and i not in dense for i in range(length)]
