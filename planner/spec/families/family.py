"""A family: what a config.json of one model_type means, as a handful of declared facts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from planner.spec.families.fields import Fields
from planner.spec.model import Attention, Model, ModelKind

Trait = bool | str
"""A fact about a family: always so, or as a key of the configuration says (its default stands in `defaults`)."""
Count = int | Callable[[Fields], int]
"""A number of a family, or how it follows from the fields."""

RMS_NORM = 1
LAYER_NORM = 2
LAYER_NORM_WITHOUT_BIAS = 1
NORM_WITHOUT_PARAMETERS = 0


class Bias(NamedTuple):
    """Which linear maps have a bias: projections of attention, feed-forward blocks, head, experts, router."""

    qkv: Trait = False
    out: Trait = False
    mlp: Trait = False
    head: Trait = False
    expert: Trait = False
    router: Trait = False


NO_BIAS = Bias()
ATTENTION_BIAS = Bias(qkv="attention_bias", out="attention_bias")
LLAMA_BIAS = Bias(qkv="attention_bias", out="attention_bias", mlp="mlp_bias")
BIAS_BY_KEY = Bias(qkv="use_bias", out="use_bias", mlp="use_bias")
BIAS_EVERYWHERE = Bias(qkv=True, out=True, mlp=True)

TIED = {"tie_word_embeddings": True}
"""Class default of families whose head shares the embedding."""


@dataclass(frozen=True)
class Family:
    """How the configurations of one model_type are read.

    `keys` maps one of the planner's names to the key (or keys, the first present wins; `table.key` looks inside a
    table) that these files use; a name that is not listed is its own key, or one of `fields.COMMON_KEYS`. `defaults`
    maps the planner's names (and the keys that traits refer to) to what a missing key means: the defaults of the
    model_type's configuration class in transformers, or a function of the fields. The other attributes are facts
    about the architecture that no key states.
    """

    keys: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    kind: ModelKind = ModelKind.DECODER
    gated: Trait = True
    """Three matrices (SwiGLU and the like) in a feed-forward block instead of two."""
    norm: Count = RMS_NORM
    """Parameters of a norm per channel: weight and bias 2, weight alone 1, none 0."""
    layer_norms: Count = 2
    """Norms of the hidden size in each layer."""
    outer_norms: Count = 1
    """Norms of the hidden size outside the layers (final norm, norm of the embeddings)."""
    bias: Bias = NO_BIAS
    qk_norm: str = ""
    """Norms of queries and keys: "head" (one weight vector for all heads), "full" (for every head its own) or none."""
    qk_norm_if: Trait = True
    qk_norm_size: int = RMS_NORM
    """As `norm`, of the norms of queries and keys."""
    learned_positions: Trait = False
    """A position embedding of max_position_embeddings rows (and `extra_positions` more)."""
    extra_positions: int = 0
    reserved_positions: int = 0
    """Rows of the position embedding that no token can use (RoBERTa's begin after the padding index)."""
    latent: bool = False
    """Multi-head latent attention."""
    key_is_value: Trait = False
    """In layers with full attention the keys serve as values (no value projection)."""
    sliding: Trait = False
    """Layers may have a sliding window: as layer_types, or full_attention_every and first_sliding_layer, say."""
    experts: Trait = False
    """Layers may be mixtures of experts."""
    sparse_offset: int = 1
    """Layer i may be sparse where (i + sparse_offset) is a multiple of `sparse_every`."""
    shared_gate: bool = False
    """A gate of the hidden size on the shared experts."""
    layer_extras: Callable[[Fields, Attention, bool], int] | None = None
    """Further parameters of a layer, given its attention and whether it is sparse."""
    extras: Callable[[Fields], int] | None = None
    """Further parameters outside the layers (projections of patches, heads of encoders)."""
    build: Callable[[Fields], Model] | None = None
    """The whole model, for architectures that are not one stack of layers."""
    note: str | Callable[[Fields], str] = ""
    """What a reader of the model's record should know."""

    def but(
        self,
        *,
        keys: Mapping[str, str | tuple[str, ...]] | None = None,
        defaults: Mapping[str, Any] | None = None,
        **facts: Any,
    ) -> Family:
        """A family that differs in some keys, defaults and facts."""
        return replace(
            self, keys={**self.keys, **(keys or {})}, defaults={**self.defaults, **(defaults or {})}, **facts
        )


def shape(
    vocab_size: int, hidden_size: int, intermediate_size: Count | None, layers: int, heads: int, **others: Any
) -> dict[str, Any]:
    """Class defaults, in the order in which model cards list them."""
    return {
        "vocab_size": vocab_size,
        "hidden_size": hidden_size,
        "intermediate_size": intermediate_size,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        **others,
    }
