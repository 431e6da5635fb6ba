"""The model that a row's dimensions describe; its name is a label."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache, lru_cache
from itertools import product

from planner.catalogue.models import model as catalogue_model
from planner.catalogue.models import model_names
from planner.spec.model import Attention, Experts, LatentAttention, Layer, Mlp, Model, ModelKind
from planner.validate.columns import Stated

GATED = ("swiglu", "geglu", "reglu", "glu")
HEAD_SIZES = (64, 128, 256)
"""Sizes of attention heads that are usual where hidden / heads is not it."""
CONTRADICTED, MET = 0.01, 0.005
"""Relative distance from the stated parameter count at which a reading is given up, and at which another is taken."""
VOCABULARY_PADDING = 0.02
DENSE_LAYERS = re.compile(r"(\d+) dense layer")
LATENT = "MLA"
"""The word in `other` that says multi-head latent attention, and whose ranks then stand for those not stated."""
LATENT_LIKE = "deepseek-v3"
HARMLESS = ("multi-token prediction",)
"""What a catalogue's model may leave out and still stand for a row of its dimensions."""
ENCODERS = ("bert", "vit-")


def run_model(filled: Stated) -> tuple[Model, tuple[str, ...]]:
    """The model of a completed row, and what had to be assumed of its architecture.

    Head size, latent attention, shared experts, dense first layers and windows are not columns: they are those of the
    catalogue's model with the same dimensions, or, failing that, the ones that meet the stated parameter count.
    """
    return _run_model(_without_rest(filled))


def _without_rest(filled: Stated) -> Stated:
    """Only what describes the model, so that rows of one model share one record."""
    names = (
        "params_b", "layers", "hidden", "heads", "kv_heads", "ffn_hidden", "mlp", "vocab", "tied_embeddings",
        "experts", "experts_topk", "moe_ffn_hidden", "model", "other", "seq_len",
    )  # fmt: skip
    model = Stated(**{name: getattr(filled, name) for name in names})
    words = [found for found in (LATENT, *DENSE_LAYERS.findall(model.other)) if found in model.other]
    other = " ".join(f"{word} dense layer" if word.isdigit() else word for word in words)
    learned = 0 if model.mlp in GATED else model.seq_len
    return replace(model, other=other, seq_len=learned)


@lru_cache(maxsize=4096)
def _run_model(row: Stated) -> tuple[Model, tuple[str, ...]]:
    known = _catalogued(row)
    if known is None:
        return _by_parameters(row)
    layers = _as_many(known.layers, row)
    told = _told(known, row)
    model = replace(
        known,
        name=row.model or known.name,
        layers=layers,
        vocab_size=row.vocab,
        tie_word_embeddings=bool(row.tied_embeddings),
    )
    return model, told


def _told(known: Model, row: Stated) -> tuple[str, ...]:
    """What the catalogue added to the columns."""
    plain = _built(row, _even_head_size(row), 0).layers[0]
    added = {
        "head size": plain.attention.head_dim != known.layers[0].attention.head_dim,
        "latent attention": any(layer.attention.latent for layer in known.layers),
        "shared experts": any(layer.experts and layer.mlp for layer in known.layers),
        "dense layers": known.has_experts and any(not layer.experts for layer in known.layers),
        "sliding window": any(layer.attention.sliding_window for layer in known.layers),
    }
    parts = ", ".join(part for part, there in added.items() if there)
    return (f"{parts} of {known.name}",) if parts else ()


def _as_many(layers: tuple[Layer, ...], row: Stated) -> tuple[Layer, ...]:
    """The catalogue's layers, cut or repeated to the stated number; as many dense first ones as `other` says."""
    if len(layers) == row.layers:
        return layers
    dense = sum(1 for layer in layers if not layer.experts)
    found = DENSE_LAYERS.search(row.other)
    if found and dense < len(layers):
        layers = layers[max(dense - int(found[1]), 0) :]
    missing = max(row.layers - len(layers), 0)
    return (*layers, *([layers[-1]] * missing))[: row.layers]


def _catalogued(row: Stated) -> Model | None:
    """The catalogue's model with these dimensions; of several, one with as many layers."""
    near = [
        model
        for model in _by_dimensions().get(_dimensions_of_row(row), ())
        if abs(model.vocab_size - row.vocab) <= VOCABULARY_PADDING * row.vocab
    ]
    return min(near, key=lambda model: abs(model.num_hidden_layers - row.layers), default=None)


Dimensions = tuple[int, int, int, int, int, int, bool]


def _dimensions_of_row(row: Stated) -> Dimensions:
    ffn = row.moe_ffn_hidden if row.experts else row.ffn_hidden
    return row.hidden, row.heads, row.kv_heads, ffn, row.experts, row.experts_topk, row.mlp in GATED


@cache
def _by_dimensions() -> Mapping[Dimensions, tuple[Model, ...]]:
    found: dict[Dimensions, tuple[Model, ...]] = {}
    for model in (catalogue_model(name) for name in model_names()):
        for dimensions in _dimensions(model):
            found[dimensions] = (*found.get(dimensions, ()), model)
    return found


def _dimensions(model: Model) -> Iterator[Dimensions]:
    """A decoder's dimensions as a row states them."""
    layer = model.layers[-1]
    attention, experts = layer.attention, layer.experts
    block = experts.expert if experts else layer.mlp
    if model.kind is ModelKind.DECODER and block and set(model.left_out) <= set(HARMLESS):
        count, chosen = (experts.num_experts, experts.experts_per_token) if experts else (0, 0)
        yield (
            model.hidden_size,
            attention.num_attention_heads,
            attention.num_key_value_heads,
            block.intermediate_size,
            count,
            chosen,
            block.gated,
        )


def _by_parameters(row: Stated) -> tuple[Model, tuple[str, ...]]:
    """The plain reading, unless the stated parameter count contradicts it and meets another."""
    plain = _built(row, _even_head_size(row), 0)
    shared = (0, row.ffn_hidden, row.moe_ffn_hidden) if row.experts else (0,)
    others = [(size, width, _built(row, size, width)) for size, width in product(HEAD_SIZES, dict.fromkeys(shared))]
    stated = row.params_b * 1e9
    size, width, nearest = min(others, key=lambda other: abs(other[2].parameters - stated))
    met = abs(nearest.parameters - stated) < MET * stated
    if met and abs(plain.parameters - stated) > CONTRADICTED * stated:
        return nearest, (f"head size {size}" + (f", shared expert of {width}" if width else ""),)
    return plain, (f"latent attention of {LATENT_LIKE}",) if LATENT in row.other else ()


def _even_head_size(row: Stated) -> int:
    return max(row.hidden // row.heads, 1)


def _built(row: Stated, head_size: int, shared: int) -> Model:
    """A model of equal layers; `shared` is the width of an expert that all tokens visit."""
    gated, norms = row.mlp in GATED, 1 if row.mlp in GATED else 2
    attention = Attention(row.heads, row.kv_heads, head_size, latent=_latent() if LATENT in row.other else None)
    experts = Experts(row.experts, row.experts_topk, Mlp(row.moe_ffn_hidden or row.ffn_hidden, gated))
    width = shared if row.experts else row.ffn_hidden
    biases = 0 if gated else sum(outputs for _, outputs in attention.projections(row.hidden)) + row.hidden + width
    layer = Layer(
        attention=attention,
        mlp=Mlp(width, gated) if width else None,
        experts=experts if row.experts else None,
        other_parameters=2 * norms * row.hidden + biases + row.experts * row.hidden,
    )
    encoder = any(word in row.model.lower() for word in ENCODERS)
    return Model(
        name=row.model or "unnamed",
        hidden_size=row.hidden,
        vocab_size=row.vocab,
        layers=(layer,) * row.layers,
        tie_word_embeddings=bool(row.tied_embeddings),
        other_parameters=norms * row.hidden + row.seq_len * row.hidden,
        kind=ModelKind.ENCODER if encoder else ModelKind.DECODER,
    )


def _latent() -> LatentAttention | None:
    return catalogue_model(LATENT_LIKE).layers[0].attention.latent
