"""A model as its layers: the dimensions that parameters, FLOPs, bytes and legality follow from."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property


@dataclass(frozen=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek-V2): low-rank projections of queries and of keys and values.

    `q_lora_rank` 0 means a full query projection.
    """

    q_lora_rank: int
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int


@dataclass(frozen=True)
class Attention:
    """Self-attention of one layer; MHA, GQA and MQA by the number of key-value heads, MLA by `latent`.

    `sliding_window` None means full attention. `head_dim` is that of queries and keys. Where `key_is_value`, keys
    serve as values too and there is no value projection (Gemma 4).
    """

    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    latent: LatentAttention | None = None
    sliding_window: int | None = None
    key_is_value: bool = False

    @property
    def value_head_dim(self) -> int:
        """Head size of values (differs from `head_dim` under MLA)."""
        return self.latent.v_head_dim if self.latent else self.head_dim

    def projections(self, hidden_size: int) -> tuple[tuple[int, int], ...]:
        """The weight matrices as (inputs, outputs), in the order of the data flow; no biases.

        Sources: Vaswani et al. 2017; DeepSeek-V2 (arXiv 2405.04434), section 2.1.
        """
        heads, kv = self.num_attention_heads, self.num_key_value_heads
        kv_projections = 1 if self.key_is_value else 2
        out = (heads * self.value_head_dim, hidden_size)
        if self.latent is None:
            return (hidden_size, (heads + kv_projections * kv) * self.head_dim), out
        mla = self.latent
        rank, q_width = mla.q_lora_rank, heads * (mla.qk_nope_head_dim + mla.qk_rope_head_dim)
        query = ((hidden_size, rank), (rank, q_width)) if rank else ((hidden_size, q_width),)
        down = (hidden_size, mla.kv_lora_rank + mla.qk_rope_head_dim)
        up = (mla.kv_lora_rank, heads * (mla.qk_nope_head_dim + mla.v_head_dim))
        return *query, down, up, out

    def separate_projections(self, hidden_size: int) -> tuple[tuple[int, int], ...]:
        """The matrices as they are named in checkpoints and adapted by LoRA: queries, keys and values apart."""
        if self.latent is not None:
            return self.projections(hidden_size)
        kv = (hidden_size, self.num_key_value_heads * self.head_dim)
        keys_and_values = (kv,) if self.key_is_value else (kv, kv)
        queries = (hidden_size, self.num_attention_heads * self.head_dim)
        return (queries, *keys_and_values, self.projections(hidden_size)[-1])

    def parameters(self, hidden_size: int) -> int:
        """Weights of the projections, without biases."""
        return sum(inputs * outputs for inputs, outputs in self.projections(hidden_size))


@dataclass(frozen=True)
class Mlp:
    """A feed-forward block; gated (SwiGLU, GeGLU: three matrices) or plain (two)."""

    intermediate_size: int
    gated: bool = True

    def parameters(self, hidden_size: int) -> int:
        """Weights, without biases."""
        return (3 if self.gated else 2) * hidden_size * self.intermediate_size


@dataclass(frozen=True)
class Experts:
    """A mixture of experts: `num_experts` blocks of which every token visits `experts_per_token`, and a router.

    Shared experts, visited by all tokens, are the layer's `mlp`.
    """

    num_experts: int
    experts_per_token: int
    expert: Mlp

    def parameters(self, hidden_size: int) -> int:
        """Weights of all experts, without the router and biases."""
        return self.num_experts * self.expert.parameters(hidden_size)


@dataclass(frozen=True)
class Layer:
    """One transformer block. `other_parameters`: norms, biases, router, gates: everything that is no large matrix.

    `mlp` is the dense block (or the shared experts); None where there is none. `cross_attention` is a decoder's
    attention to an encoder (T5).
    """

    attention: Attention
    mlp: Mlp | None
    experts: Experts | None = None
    other_parameters: int = 0
    cross_attention: Attention | None = None

    def dense_parameters(self, hidden_size: int) -> int:
        """Weights outside the experts that tensor parallelism divides: projections and the dense or shared block."""
        blocks = (self.attention, self.cross_attention, self.mlp)
        return sum(block.parameters(hidden_size) for block in blocks if block)

    def expert_parameters(self, hidden_size: int) -> int:
        """Weights of all experts of the layer."""
        return self.experts.parameters(hidden_size) if self.experts else 0

    def parameters(self, hidden_size: int) -> int:
        """All parameters of the layer."""
        return self.dense_parameters(hidden_size) + self.expert_parameters(hidden_size) + self.other_parameters

    def active_parameters(self, hidden_size: int) -> int:
        """Parameters that one token passes through."""
        if not self.experts:
            return self.parameters(hidden_size)
        visited = self.experts.experts_per_token * self.experts.expert.parameters(hidden_size)
        return self.dense_parameters(hidden_size) + visited + self.other_parameters


class ModelKind(IntEnum):
    """What the model computes, hence its head and the masking of attention."""

    DECODER = 0
    ENCODER = 1
    ENCODER_DECODER = 2


@dataclass(frozen=True)
class Model:
    """A transformer as the planner sees it.

    `layers` lists every block in order (of an encoder-decoder the encoder's first); equal blocks are equal records.
    `embedding_size` is the width of the token embedding where it is not the hidden size (0: it is).
    `other_parameters` counts what stands outside layers, embedding and head: final norm, learned positions, patch
    projection, a masked-language head's transform, and the parameters of parts whose work is not modelled. `left_out`
    names those parts (a vision tower), with their effect stated in `notes`. `max_seq_len` 0 means unknown.
    """

    name: str
    hidden_size: int
    vocab_size: int
    layers: tuple[Layer, ...]
    tie_word_embeddings: bool = False
    other_parameters: int = 0
    max_seq_len: int = 0
    kind: ModelKind = ModelKind.DECODER
    model_type: str = ""
    embedding_size: int = 0
    left_out: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def num_hidden_layers(self) -> int:
        """Number of blocks."""
        return len(self.layers)

    @cached_property
    def layer_kinds(self) -> tuple[tuple[Layer, int], ...]:
        """The distinct blocks with how many there are of each, in order of first appearance."""
        return tuple(Counter(self.layers).items())

    @cached_property
    def layer_pattern(self) -> tuple[int, ...]:
        """For each block its index in `layer_kinds`."""
        index = {layer: i for i, (layer, _) in enumerate(self.layer_kinds)}
        return tuple(index[layer] for layer in self.layers)

    @property
    def causal(self) -> bool:
        """Whether attention skips the masked half."""
        return self.kind is not ModelKind.ENCODER

    @property
    def embedding_parameters(self) -> int:
        """The token embedding (vocab_size x hidden_size); none where patches are embedded (vocab_size 0)."""
        return self.vocab_size * (self.embedding_size or self.hidden_size)

    @property
    def head_parameters(self) -> int:
        """The output projection, as computed; it holds parameters of its own only when not tied."""
        return self.embedding_parameters

    @cached_property
    def parameters(self) -> int:
        """All parameters; a tied head counts once."""
        head = 0 if self.tie_word_embeddings else self.head_parameters
        layers = sum(count * layer.parameters(self.hidden_size) for layer, count in self.layer_kinds)
        return self.embedding_parameters + head + self.other_parameters + layers

    @cached_property
    def active_parameters(self) -> int:
        """Parameters that one token passes through (all of them for a dense model)."""
        idle = sum(
            count * (layer.parameters(self.hidden_size) - layer.active_parameters(self.hidden_size))
            for layer, count in self.layer_kinds
        )
        return self.parameters - idle

    @property
    def has_experts(self) -> bool:
        """Whether any layer is a mixture of experts."""
        return any(layer.experts for layer, _ in self.layer_kinds)
