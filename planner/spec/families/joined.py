"""A model of several parts: a decoder that is modelled, and a vision tower whose parameters are counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from planner.spec.families import vision
from planner.spec.families.choice import refuse_unmodelled
from planner.spec.families.encoders import VIT
from planner.spec.families.family import Family
from planner.spec.families.fields import Fields
from planner.spec.families.layers import transformer
from planner.spec.families.multimodal import WRAPPERS, Joint, Wrapper
from planner.spec.families.single import single_model
from planner.spec.model import Model

TEXT_TABLES = ("text_config", "llm_config", "language_config")
UNKNOWN = Wrapper(text="", vision="")


def has_parts(config: Mapping[str, Any]) -> bool:
    """Whether a configuration describes a decoder with other parts (known by its type or by a table for the text)."""
    model_type = config.get("model_type")
    known = isinstance(model_type, str) and model_type.lower() in WRAPPERS
    return known or any(isinstance(config.get(table), Mapping) for table in (*TEXT_TABLES, "vision_config"))


def joined_model(config: Mapping[str, Any], *, where: str) -> Model:
    """The decoder, with the parameters of the vision tower and its projector among `other_parameters`.

    Raises as `single_model` does.
    """
    outer = Fields(config, Family(), where=where)
    model_type = outer.text("model_type").lower()
    refuse_unmodelled(model_type, where=where)
    wrapper = WRAPPERS.get(model_type, UNKNOWN)
    text = _text_part(outer, wrapper)
    text = text if wrapper is UNKNOWN else replace(text, model_type=model_type)
    return _with_vision(_with_audio(text, outer), outer, wrapper)


def _text_part(outer: Fields, wrapper: Wrapper) -> Model:
    """The decoder; some files keep its keys at the top."""
    name = next((table for table in TEXT_TABLES if outer.table(table)), "")
    keys = dict(outer.table(name) if name else outer.config)
    if wrapper is not UNKNOWN and (not name or wrapper.text == "step3p5"):
        keys.pop("model_type", None)
    implied = "" if "model_type" in keys else wrapper.text
    defaults = wrapper.text_defaults if keys.get("model_type", wrapper.text) == wrapper.text else None
    path = f"{name}." if name else ""
    model = single_model(keys, where=outer.where, path=path, model_type=implied, defaults=defaults)
    tied = outer.flag("tie_word_embeddings") if outer.stated("tie_word_embeddings") else wrapper.tied
    if wrapper is UNKNOWN and not outer.stated("tie_word_embeddings"):
        return model
    return replace(model, tie_word_embeddings=tied or keys.get("tie_word_embeddings") is True)


def _with_audio(model: Model, outer: Fields) -> Model:
    if not outer.table("audio_config"):
        return model
    return _left_out(model, "audio tower", "the audio tower is not modelled, and its parameters are not counted")


def _with_vision(model: Model, outer: Fields, wrapper: Wrapper) -> Model:
    """The decoder with the tower's parameters; towers of unknown type are read as plain vision transformers."""
    if not outer.stated("vision_config") and ("vision_config" in outer.config or not wrapper.vision):
        return model
    table = outer.table("vision_config")
    kind = _vision_type(table, outer, wrapper)
    family = vision.FAMILIES.get(kind, VIT).but(defaults=wrapper.vision_defaults if kind == wrapper.vision else None)
    tower_fields = Fields(table, family, where=outer.where, path="vision_config.")
    if kind not in vision.FAMILIES and not all(map(tower_fields.stated, ("hidden_size", "num_hidden_layers"))):
        note = f"the vision tower (of unknown type {kind!r}) is not modelled, and its parameters are not counted"
        return _left_out(model, "vision tower", note)
    tower = transformer(tower_fields)
    size = tower.parameters + wrapper.projector(Joint(outer, tower_fields, tower.hidden_size, model.hidden_size))
    read_as = "" if kind in vision.FAMILIES else f" (its type {kind!r} is not known: read as a plain one)"
    note = (
        f"the vision tower's {size / 1e9:.2f}B parameters are counted{read_as}; its work and activations are left out"
    )
    counted = replace(model, other_parameters=model.other_parameters + size)
    return _left_out(counted, "vision tower", note)


def _vision_type(table: Mapping[str, Any], outer: Fields, wrapper: Wrapper) -> str:
    """The tower's model_type; files of some wrappers repeat the outer type there, or name none."""
    named = table.get("model_type")
    if not isinstance(named, str) or named == outer.value("model_type") or wrapper.vision == "step3p5_vision":
        return wrapper.vision
    return named.lower()


def _left_out(model: Model, part: str, note: str) -> Model:
    return replace(model, left_out=(*model.left_out, part), notes=(*model.notes, note))
