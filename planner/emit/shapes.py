"""What frameworks are told of a model: one shape of attention, dense blocks first, experts after."""

from __future__ import annotations

from dataclasses import dataclass, replace

from planner.spec.model import Attention, Experts, Layer, Mlp, Model, ModelKind


class Unlike(Exception):
    """A model that is not of the form in question; says why, in words."""


@dataclass(frozen=True)
class Shape:
    """A decoder whose layers have one attention, and one dense block or one set of experts.

    `dense` is the block of the layers without experts, `shared` that of the layers with experts. `has_experts` and
    `windows` say it layer by layer.
    """

    attention: Attention
    dense: Mlp | None
    shared: Mlp | None
    experts: Experts | None
    has_experts: tuple[bool, ...]
    windows: tuple[int | None, ...]

    @property
    def dense_layers(self) -> int:
        """How many layers before the first with experts."""
        return self.has_experts.index(True) if any(self.has_experts) else len(self.has_experts)

    @property
    def dense_first(self) -> bool:
        """Whether no dense layer comes after one with experts."""
        return all(self.has_experts[self.dense_layers :])

    @property
    def head_dim(self) -> int:
        """Size of a head of queries and keys."""
        return self.attention.head_dim


def shape_of(model: Model, seq_len: int = 0) -> Shape:
    """The model as frameworks take it; windows no shorter than `seq_len` (if given) are none. Raises Unlike."""
    if model.kind is not ModelKind.DECODER:
        raise Unlike("it is no decoder")
    if model.left_out and model.left_out != ("multi-token prediction",):
        raise Unlike(f"it has a {' and a '.join(model.left_out)}")
    if model.embedding_size not in (0, model.hidden_size):
        raise Unlike("its embedding is not as wide as its layers")
    dense = [layer.mlp for layer in model.layers if layer.experts is None]
    mixed = [layer for layer in model.layers if layer.experts is not None]
    windows = tuple(_window(layer, seq_len) for layer in model.layers)
    attentions = {replace(layer.attention, sliding_window=None) for layer in model.layers}
    for sizes, what in (
        (attentions, "attentions"),
        (set(dense), "dense blocks"),
        (set(map(_mixture, mixed)), "experts"),
    ):
        if len(sizes) > 1:
            raise Unlike(f"its layers have different {what}")
    return Shape(
        attention=attentions.pop(),
        dense=dense[0] if dense else None,
        shared=mixed[0].mlp if mixed else None,
        experts=mixed[0].experts if mixed else None,
        has_experts=tuple(layer.experts is not None for layer in model.layers),
        windows=windows,
    )


def _mixture(layer: Layer) -> tuple[Mlp | None, Experts | None]:
    return layer.mlp, layer.experts


def _window(layer: Layer, seq_len: int) -> int | None:
    window = layer.attention.sliding_window
    return None if window is None or (seq_len and window >= seq_len) else window


def has_extras(model: Model, dense: int, mixed: int) -> bool:
    """Whether layers hold so many parameters besides their large matrices, without and with experts."""
    expected = {False: dense, True: mixed}
    return all(layer.other_parameters == expected[layer.experts is not None] for layer, _ in model.layer_kinds)
