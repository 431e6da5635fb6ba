"""One stack of transformer layers from a family's facts and a configuration's fields."""

from __future__ import annotations

from planner.spec.families.fields import Fields
from planner.spec.families.patterns import sparse_layers, windows
from planner.spec.model import Attention, Experts, LatentAttention, Layer, Mlp, Model


def transformer(f: Fields) -> Model:
    """The model that the fields describe; without name and notes, which the reader adds.

    Raises FileFormatError for a missing, ill-typed or impossible value.
    """
    hidden = f.count("hidden_size")
    width = f.count("embedding_width", hidden)
    return Model(
        name="",
        hidden_size=hidden,
        vocab_size=vocabulary(f),
        layers=layer_stack(f),
        tie_word_embeddings=f.flag("tie_word_embeddings"),
        other_parameters=outer_parameters(f, hidden),
        max_seq_len=max(0, f.count("max_position_embeddings", 0, least=0) - f.family.reserved_positions),
        kind=f.family.kind,
        embedding_size=0 if width == hidden else width,
    )


def vocabulary(f: Fields) -> int:
    """Size of the vocabulary; 0 only for families that embed patches instead of tokens."""
    return f.count("vocab_size", least=int(f.family.defaults.get("vocab_size") != 0))


def layer_stack(f: Fields) -> tuple[Layer, ...]:
    """All layers in order; equal layers are one record."""
    length = f.count("num_hidden_layers")
    kinds = list(zip(windows(f, length), sparse_layers(f, length), strict=True))
    made = {kind: one_layer(f, *kind) for kind in set(kinds)}
    return tuple(made[kind] for kind in kinds)


def one_layer(f: Fields, window: int | None, sparse: bool) -> Layer:
    """A layer with full or windowed attention and a dense block or experts."""
    hidden = f.count("hidden_size")
    attention = self_attention(f, window)
    mlp = shared_block(f) if sparse else dense_block(f)
    experts = expert_block(f) if sparse else None
    other = f.number(f.family.layer_norms) * f.number(f.family.norm) * hidden
    other += attention_extras(f, attention, hidden)
    other += bias_of(f, mlp, hidden) if mlp and f.flag(f.family.bias.mlp) else 0
    other += expert_extras(f, experts, hidden) if experts else 0
    other += f.family.layer_extras(f, attention, sparse) if f.family.layer_extras else 0
    return Layer(attention, mlp, experts, other_parameters=other)


def self_attention(f: Fields, window: int | None) -> Attention:
    """The attention of a layer; families may give layers with full or sliding windows other heads than the rest."""
    scope = "sliding" if window else "full"
    heads = f.count(f"{scope}_num_attention_heads", f.count("num_attention_heads"))
    if f.family.latent:
        return latent_attention(f, heads, window)
    kv_heads = f.count(f"{scope}_num_key_value_heads", f.count("num_key_value_heads", heads))
    if heads % kv_heads:
        right = f"possible near it: {_near_divisors(heads, kv_heads)}"
        raise f.error(f"{f.label('num_key_value_heads')} {kv_heads} does not divide {heads} attention heads; {right}")
    width = f.optional(f"{scope}_head_dim") or f.optional("head_dim") or derived_head_dim(f, heads)
    key_is_value = window is None and f.flag(f.family.key_is_value)
    return Attention(heads, kv_heads, width, sliding_window=window, key_is_value=key_is_value)


def latent_attention(f: Fields, heads: int, window: int | None) -> Attention:
    """Multi-head latent attention; a missing or null q_lora_rank means a full query projection."""
    latent = LatentAttention(
        q_lora_rank=f.optional("q_lora_rank") or 0,
        kv_lora_rank=f.count("kv_lora_rank"),
        qk_nope_head_dim=f.count("qk_nope_head_dim"),
        qk_rope_head_dim=f.count("qk_rope_head_dim"),
        v_head_dim=f.optional("v_head_dim") or derived_head_dim(f, heads),
    )
    return Attention(heads, heads, latent.qk_nope_head_dim + latent.qk_rope_head_dim, latent, window)


def derived_head_dim(f: Fields, heads: int) -> int:
    """The hidden size divided among the heads, where no key gives the size of a head."""
    hidden = f.count("hidden_size")
    if hidden % heads:
        label, right = f.label("num_attention_heads"), _near_divisors(hidden, heads)
        raise f.error(
            f"{label} {heads} does not divide {f.label('hidden_size')} {hidden} and no key gives head_dim; "
            f"possible near it: {right}"
        )
    return hidden // heads


def attention_extras(f: Fields, attention: Attention, hidden: int) -> int:
    """Biases of the projections, and norms of queries, keys and latents."""
    heads, kv_heads, width = attention.num_attention_heads, attention.num_key_value_heads, attention.head_dim
    if attention.latent:
        ranks = attention.latent.q_lora_rank + attention.latent.kv_lora_rank
        norms, bias = ranks, ranks + attention.latent.qk_rope_head_dim
    else:
        normed = {"": 0, "head": 2 * width, "full": (heads + kv_heads) * width}[f.family.qk_norm]
        norms = normed * f.family.qk_norm_size if f.flag(f.family.qk_norm_if) else 0
        bias = (heads + (1 if attention.key_is_value else 2) * kv_heads) * width
    return norms + f.flag(f.family.bias.qkv) * bias + f.flag(f.family.bias.out) * hidden


def dense_block(f: Fields) -> Mlp:
    """The feed-forward block of a layer without experts."""
    return Mlp(f.count("intermediate_size"), f.flag(f.family.gated))


def shared_block(f: Fields) -> Mlp | None:
    """The experts that all tokens visit, as one block; None where there are none."""
    counted = f.count("num_shared_experts", 0, least=0)
    size = f.count("shared_intermediate_size", counted * expert_size(f) if counted else 0, least=0)
    return Mlp(size, f.flag(f.family.gated)) if size else None


def expert_block(f: Fields) -> Experts:
    """The routed experts of a layer."""
    number, visited = f.count("num_experts"), f.count("num_experts_per_tok")
    if visited > number:
        raise f.error(f"{f.label('num_experts_per_tok')} {visited} exceeds {f.label('num_experts')} {number}")
    return Experts(number, visited, Mlp(expert_size(f), f.flag(f.family.gated)))


def expert_size(f: Fields) -> int:
    """Intermediate size of one expert: a key of its own, or the dense block's."""
    return f.optional("moe_intermediate_size") or f.count("intermediate_size")


def expert_extras(f: Fields, experts: Experts, hidden: int) -> int:
    """The router, the gate of shared experts, and biases."""
    router = experts.num_experts * (hidden + f.flag(f.family.bias.router))
    biases = experts.num_experts * bias_of(f, experts.expert, hidden) if f.flag(f.family.bias.expert) else 0
    return router + biases + (hidden if f.family.shared_gate else 0)


def bias_of(f: Fields, mlp: Mlp, hidden: int) -> int:
    """Biases of a feed-forward block."""
    return (2 if mlp.gated else 1) * mlp.intermediate_size + hidden


def outer_parameters(f: Fields, hidden: int) -> int:
    """What stands outside layers, embedding and head."""
    norms = f.number(f.family.outer_norms) * f.number(f.family.norm) * hidden
    rows = f.count("max_position_embeddings") + f.family.extra_positions if f.flag(f.family.learned_positions) else 0
    head_bias = vocabulary(f) if f.flag(f.family.bias.head) else 0
    return norms + rows * hidden + head_bias + (f.family.extras(f) if f.family.extras else 0)


def _near_divisors(number: int, wrong: int) -> str:
    """The divisors next to a number that is none.

    >>> _near_divisors(4096, 30)
    '16, 32'
    """
    below = next(n for n in range(min(wrong, number), 0, -1) if number % n == 0)
    above = next((n for n in range(wrong, number + 1) if number % n == 0), below)
    return f"{below}, {above}" if above != below else str(below)
