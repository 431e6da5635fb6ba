"""The dimensions of a model as arguments of Megatron-LM (core 0.20.0), by family.

Sources: Megatron-LM @d98e8a6, megatron/training/arguments.py, megatron/core/transformer/transformer_config.py, and its
examples for Llama 3, Mixtral and DeepSeek-V3.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import gcd

from planner.emit.shapes import Shape, Unlike, has_extras, shape_of
from planner.spec.model import Model

Words = tuple[str, ...]
"""An argument with its values."""
VOCABULARY_BLOCK = 128
"""Megatron pads the vocabulary of a rank to a multiple of this, unless told otherwise."""
LEAST_VOCABULARY_BLOCK = 8
"""Columns of the head that tensor cores take at once."""


@dataclass(frozen=True)
class Family:
    """What a model_type has that its dimensions do not say.

    `norm_vectors` counts those of one norm: a weight, or a weight and a bias.
    """

    qkv_bias: bool = False
    biases: bool = False
    norm_vectors: int = 1
    qk_norm: bool = False
    norms: tuple[Words, ...] = (("--normalization", "RMSNorm"),)
    activation: str = "--swiglu"
    learned_positions: bool = False
    rotary_base: int = 10000
    rotary_percent: float = 1.0
    shared_gate: bool = False
    router: tuple[Words, ...] = ()


LAYER_NORM: tuple[Words, ...] = (("--normalization", "LayerNorm"),)
GPT2 = Family(
    biases=True,
    qkv_bias=True,
    norm_vectors=2,
    norms=LAYER_NORM,
    activation="",
    learned_positions=True,
)
LLAMA = Family(rotary_base=500000)
QWEN2 = Family(qkv_bias=True, rotary_base=1000000)
QWEN3 = Family(qk_norm=True, rotary_base=1000000)
SIGMOID: tuple[Words, ...] = (
    ("--moe-router-score-function", "sigmoid"),
    ("--moe-router-enable-expert-bias",),
    ("--moe-router-dtype", "fp32"),
)
FAMILIES = {
    "llama": LLAMA,
    "mistral": replace(LLAMA, rotary_base=1000000),
    "phi3": replace(LLAMA, rotary_base=10000),
    "mixtral": replace(LLAMA, rotary_base=1000000),
    "qwen2": QWEN2,
    "qwen2_moe": replace(QWEN2, shared_gate=True),
    "qwen3": QWEN3,
    "qwen3_moe": QWEN3,
    "deepseek": Family(router=(("--moe-router-pre-softmax",),)),
    "deepseek_v2": Family(router=(("--moe-router-pre-softmax",),)),
    "deepseek_v3": Family(router=SIGMOID),
    "kimi_k2": Family(router=SIGMOID),
    "gpt2": GPT2,
    "starcoder2": replace(GPT2, learned_positions=False, rotary_base=100000),
    "stablelm": Family(norm_vectors=2, norms=LAYER_NORM, rotary_percent=0.25),
    "nemotron": Family(
        norm_vectors=2,
        norms=(*LAYER_NORM, ("--apply-layernorm-1p",)),
        activation="--squared-relu",
        rotary_percent=0.5,
    ),
}
"""model_type -> family."""


def model_arguments(model: Model, seq_len: int, tp: int) -> list[Words]:
    """All that the model's dimensions say. Raises Unlike, in words, for a model that these arguments cannot express."""
    family = FAMILIES.get(model.model_type)
    if family is None:
        raise Unlike(f"pretrain_gpt.py has no {model.model_type or 'such'} model; it has: {', '.join(FAMILIES)}")
    shape = shape_of(model, seq_len)
    _check(model, shape, family, seq_len)
    return [
        ("--num-layers", str(model.num_hidden_layers)),
        ("--hidden-size", str(model.hidden_size)),
        ("--ffn-hidden-size", str(_dense_width(model, shape))),
        *_attention(shape, family),
        *family.norms,
        *_positions(model, family, seq_len),
        *([] if not family.activation else [(family.activation,)]),
        *_experts(shape, family),
        *([] if model.tie_word_embeddings else [("--untie-embeddings-and-output-weights",)]),
        ("--vocab-size", str(model.vocab_size)),
        ("--make-vocab-size-divisible-by", str(vocabulary_block(model.vocab_size, tp))),
    ]


def vocabulary_block(vocab_size: int, tp: int) -> int:
    """What the vocabulary of one rank is padded to a multiple of: as little as matrix products allow.

    >>> vocabulary_block(128256, 1), vocabulary_block(128256, 8), vocabulary_block(50257, 1)
    (128, 32, 128)
    """
    block = gcd(vocab_size // tp, VOCABULARY_BLOCK) if vocab_size % tp == 0 else 1
    return block if block >= LEAST_VOCABULARY_BLOCK else VOCABULARY_BLOCK


def _check(model: Model, shape: Shape, family: Family, seq_len: int) -> None:
    """Raise Unlike where the model has parts that no argument adds, or lacks some that are always there."""
    if any(shape.windows):
        raise Unlike(f"its attention would see all {seq_len} tokens, not a window of them")
    gated = {block.gated for block in (shape.dense, shape.shared, shape.experts and shape.experts.expert) if block}
    if gated != {family.activation == "--swiglu"}:
        raise Unlike(f"{model.model_type} blocks are not of this kind")
    if not has_extras(model, _extras(model, shape, family), _extras(model, shape, family, mixed=True)):
        raise Unlike(f"its layers have other norms and biases than those of {model.model_type}")
    if family.learned_positions and seq_len > model.max_seq_len:
        raise Unlike(f"the model knows {model.max_seq_len} positions, not {seq_len}")


def _extras(model: Model, shape: Shape, family: Family, *, mixed: bool = False) -> int:
    """Parameters of a layer besides its large matrices."""
    hidden, attention = model.hidden_size, shape.attention
    heads = attention.num_attention_heads + 2 * attention.num_key_value_heads
    norms = 2 * family.norm_vectors * hidden
    if attention.latent:
        norms += attention.latent.q_lora_rank + attention.latent.kv_lora_rank
    elif family.qk_norm:
        norms += 2 * attention.head_dim
    biases = heads * attention.head_dim * family.qkv_bias
    if family.biases:
        biases += 2 * hidden + (shape.dense.intermediate_size if shape.dense else 0)
    if not (mixed and shape.experts):
        return norms + biases
    experts = shape.experts.num_experts
    return norms + biases + experts * hidden + hidden * family.shared_gate


def _dense_width(model: Model, shape: Shape) -> int:
    blocks = [block for block in (shape.dense, shape.experts and shape.experts.expert) if block]
    if not blocks:
        raise Unlike("its layers have no feed-forward block")
    return blocks[0].intermediate_size


def _attention(shape: Shape, family: Family) -> Iterator[Words]:
    attention, latent = shape.attention, shape.attention.latent
    yield "--num-attention-heads", str(attention.num_attention_heads)
    if latent:
        yield ("--multi-latent-attention",)
        if latent.q_lora_rank:
            yield "--q-lora-rank", str(latent.q_lora_rank)
        yield "--kv-lora-rank", str(latent.kv_lora_rank)
        yield "--qk-head-dim", str(latent.qk_nope_head_dim)
        yield "--qk-pos-emb-head-dim", str(latent.qk_rope_head_dim)
        yield "--v-head-dim", str(latent.v_head_dim)
    else:
        yield "--kv-channels", str(attention.head_dim)
        if attention.num_key_value_heads != attention.num_attention_heads:
            yield ("--group-query-attention",)
            yield "--num-query-groups", str(attention.num_key_value_heads)
    if latent or family.qk_norm:
        yield ("--qk-layernorm",)
    if not family.biases:
        yield ("--disable-bias-linear",)
        if family.qkv_bias:
            yield ("--add-qkv-bias",)


def _positions(model: Model, family: Family, seq_len: int) -> Iterator[Words]:
    yield "--max-position-embeddings", str(max(model.max_seq_len, seq_len))
    if family.learned_positions:
        yield "--position-embedding-type", "learned_absolute"
        return
    yield "--position-embedding-type", "rope"
    yield "--rotary-base", str(family.rotary_base)
    if family.rotary_percent != 1.0:
        yield "--rotary-percent", str(family.rotary_percent)


def _experts(shape: Shape, family: Family) -> Iterator[Words]:
    experts = shape.experts
    if experts is None:
        return
    yield "--num-experts", str(experts.num_experts)
    if not all(shape.has_experts):
        yield "--moe-layer-freq", _pattern(shape)
    yield "--moe-ffn-hidden-size", str(experts.expert.intermediate_size)
    if shape.shared:
        yield "--moe-shared-expert-intermediate-size", str(shape.shared.intermediate_size)
        if family.shared_gate:
            yield ("--moe-shared-expert-gate",)
    yield "--moe-router-topk", str(experts.experts_per_token)
    yield from family.router
    yield "--moe-router-load-balancing-type", "aux_loss"
    yield "--moe-aux-loss-coeff", "0.001"
    yield ("--moe-grouped-gemm",)
    yield "--moe-token-dispatcher-type", "alltoall"


def _pattern(shape: Shape) -> str:
    """Layers without and with experts as the list expression that Megatron evaluates."""
    runs: list[list[int]] = []
    for mixed in shape.has_experts:
        if runs and runs[-1][0] == int(mixed):
            runs[-1][1] += 1
        else:
            runs.append([int(mixed), 1])
    return "+".join(f"[{kind}]*{count}" for kind, count in runs)
