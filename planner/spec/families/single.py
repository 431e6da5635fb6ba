"""A model of one part, from its configuration table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from planner.errors import SpecError
from planner.spec.families import FAMILIES
from planner.spec.families.choice import DIMENSIONS, family_of
from planner.spec.families.fields import Fields
from planner.spec.families.layers import transformer
from planner.spec.model import Model


def single_model(
    config: Mapping[str, Any],
    *,
    where: str,
    path: str = "",
    model_type: str = "",
    defaults: Mapping[str, Any] | None = None,
) -> Model:
    """The model of one table, without a name.

    `path` is the table's place in the file, for messages; `model_type` and `defaults` are what its enclosing table
    implies. Raises FileFormatError for wrong values and SpecError for what is not modelled.
    """
    config = {**config, "model_type": model_type} if model_type else config
    read_as, guess = family_of(config, where=where)
    family = FAMILIES[read_as].but(defaults=defaults)
    f = Fields(config, family, where=where, path=path)
    if f.flag("add_cross_attention"):
        raise SpecError("cross-attention of a decoder that stands alone is not modelled yet", where=where)
    if family.experts is False and f.stated("num_experts") and f.count("num_experts", least=0) > 1:
        raise SpecError(f"{f.label('num_experts')}: experts of a {read_as} are not modelled yet", where=where)
    model = (family.build or transformer)(f)
    notes = (guess, f.remark(family.note), _assumed(f, read_as), _quantised(f))
    left_out = [*_prediction_modules(f, model), *_other_inputs(f)]
    return replace(
        model,
        model_type=read_as,
        left_out=tuple(part for part, _ in left_out),
        notes=tuple(note for note in (*notes, *(note for _, note in left_out)) if note),
    )


def _assumed(f: Fields, read_as: str) -> str:
    """Which of the main dimensions the file leaves to the class defaults."""
    defaults = {name: f.family.defaults.get(name) for name in DIMENSIONS if not f.stated(name)}
    given = ", ".join(f"{name} {size}" for name, size in defaults.items() if isinstance(size, int) and size)
    return f"not stated, taken from the defaults of {read_as}: {given}" if given else ""


def _prediction_modules(f: Fields, model: Model) -> list[tuple[str, str]]:
    """Modules for multi-token prediction: a layer each, and a projection of two hidden states."""
    number = f.optional("prediction_layers")
    if not number:
        return []
    size = number * (model.layers[-1].parameters(model.hidden_size) + 2 * model.hidden_size**2)
    note = f"{number} multi-token prediction module(s), about {size / 1e9:.2f}B parameters, are not counted"
    return [("multi-token prediction", note)]


def _other_inputs(f: Fields) -> list[tuple[str, str]]:
    """Towers that older files name in one table, without their sizes."""
    keys = [key for key in ("img_processor", "audio_processor", "visual", "mm_vision_tower") if f.has(key)]
    return [(key, f"{key} is not modelled, and its parameters are not counted") for key in keys]


def _quantised(f: Fields) -> str:
    return "the file describes quantised weights; only their shapes are read" if f.has("quantization_config") else ""
