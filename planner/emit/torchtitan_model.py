"""The models of torchtitan 0.3.0 as Python source: which of them a model is, with what dimensions.

Source: the functions that build layers in torchtitan/models/<family>/__init__.py of 0.3.0. They set initial values and
norms; all dimensions are arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from planner.emit.python_text import Call, Name, call, source
from planner.emit.shapes import Shape, Unlike, has_extras, shape_of
from planner.spec.model import Model

THETA = {"llama": 500000.0, "qwen3": 1000000.0, "qwen3_moe": 1000000.0, "gpt_oss": 150000.0}
"""Rotary bases of the families; of the others 10000."""
LLAMA_TYPES = ("llama", "mistral", "phi3")
"""model_type of decoders with RMSNorm, SwiGLU and rotary positions over the whole head, without biases."""
DEEPSEEK_TYPES = ("deepseek_v2", "deepseek_v3", "kimi_k2")
STACKS_OF_EXPERTS = "standard"
"""Experts are reached by torch's own all-to-all."""


@dataclass(frozen=True)
class ModelCode:
    """Import lines, the class of the model's configuration, its source, and arguments of the family's registry."""

    imports: tuple[str, ...]
    model_class: str
    source: str
    registry: str = ""


@dataclass(frozen=True)
class Asked:
    """A model, its shape, and what of the job its layers depend on."""

    model: Model
    shape: Shape
    cp: int


def model_code(model: Model, seq_len: int, cp: int) -> ModelCode:
    """The source of the model. Raises Unlike, in words, where torchtitan has no such model."""
    family = FAMILIES.get(model.model_type)
    if family is None:
        known = "llama3, qwen3, deepseek_v3 and gpt_oss"
        raise Unlike(f"it has no {model.model_type or 'such'} model, but {known}")
    return family(Asked(_long_enough(model, seq_len), shape_of(model, seq_len), cp))


def _long_enough(model: Model, seq_len: int) -> Model:
    return replace(model, max_seq_len=max(model.max_seq_len, seq_len))


def _llama(asked: Asked) -> ModelCode:
    model, shape = asked.model, asked.shape
    attention = shape.attention
    if shape.experts or attention.latent or any(shape.windows) or not (shape.dense and shape.dense.gated):
        raise Unlike("its llama3 has full attention and gated dense blocks only")
    if shape.head_dim * attention.num_attention_heads != model.hidden_size:
        raise Unlike("heads of its llama3 together are as wide as the layers")
    if not has_extras(model, 2 * model.hidden_size, 0):
        raise Unlike("its llama3 has two norms a layer, and no biases")
    layers = call(
        "_build_llama3_layers",
        n_layers=model.num_hidden_layers,
        dim=model.hidden_size,
        n_heads=attention.num_attention_heads,
        n_kv_heads=attention.num_key_value_heads,
        hidden_dim=shape.dense.intermediate_size,
        rope=_rope("ComplexRoPE", model, shape.head_dim),
        attn_backend="flex",
    )
    return _code(asked, "llama3", "Llama3Model", layers, _Parts("ComplexRoPE", "_output_linear_init(%d)"))


def _qwen3(asked: Asked) -> ModelCode:
    model, shape = asked.model, asked.shape
    attention, experts = shape.attention, shape.experts
    if attention.latent or any(shape.windows) or shape.shared or (experts and shape.dense):
        raise Unlike("its qwen3 has full attention, and dense blocks or experts in all layers")
    norms = 2 * model.hidden_size + 2 * shape.head_dim
    if not has_extras(model, norms, norms + (experts.num_experts * model.hidden_size if experts else 0)):
        raise Unlike("its qwen3 has two norms a layer and two a head, and no biases")
    common: dict[str, Any] = {
        "n_layers": model.num_hidden_layers,
        "dim": model.hidden_size,
        "n_heads": attention.num_attention_heads,
        "n_kv_heads": attention.num_key_value_heads,
        "head_dim": shape.head_dim,
    }
    ends = {"attn_backend": "flex", "rope": _rope("CosSinRoPE", model, shape.head_dim)}
    if experts:
        inside = {
            "moe_hidden_dim": _gated(experts.expert.gated, experts.expert.intermediate_size),
            "num_experts": experts.num_experts,
            "top_k": experts.experts_per_token,
            "moe_comm_backend": STACKS_OF_EXPERTS,
        }
        layers = call("_build_qwen3_moe_layers", **common, **inside, **ends)
    else:
        assert shape.dense is not None
        width = _gated(shape.dense.gated, shape.dense.intermediate_size)
        layers = call("_build_qwen3_layers", **common, hidden_dim=width, **ends)
    return _code(asked, "qwen3", "Qwen3Model", layers, _Parts("CosSinRoPE", "_LINEAR_INIT", norm="_qwen3_norm(%d)"))


def _deepseek(asked: Asked) -> ModelCode:
    model, shape = asked.model, asked.shape
    latent, experts = shape.attention.latent, shape.experts
    if latent is None or experts is None or shape.shared is None or not shape.dense_first or any(shape.windows):
        raise Unlike("its deepseek_v3 has latent attention and experts with a shared one, dense layers first")
    norms = 2 * model.hidden_size + latent.q_lora_rank + latent.kv_lora_rank
    router = experts.num_experts * model.hidden_size
    if not has_extras(model, norms, norms + router):
        raise Unlike("its deepseek_v3 has norms and a router, and no biases")
    sigmoid = model.model_type != "deepseek_v2"
    shared, left_over = divmod(shape.shared.intermediate_size, experts.expert.intermediate_size)
    if left_over:
        raise Unlike("shared experts of its deepseek_v3 are whole experts")
    layers = call(
        "_build_dsv3_layers",
        n_layers=model.num_hidden_layers,
        n_dense_layers=shape.dense_layers,
        dim=model.hidden_size,
        n_heads=shape.attention.num_attention_heads,
        q_lora_rank=latent.q_lora_rank,
        kv_lora_rank=latent.kv_lora_rank,
        qk_nope_head_dim=latent.qk_nope_head_dim,
        qk_rope_head_dim=latent.qk_rope_head_dim,
        v_head_dim=latent.v_head_dim,
        mscale=1.0,
        dense_hidden_dim=shape.dense.intermediate_size if shape.dense else model.hidden_size,
        moe_hidden_dim=_gated(experts.expert.gated, experts.expert.intermediate_size),
        num_experts=experts.num_experts,
        num_shared_experts=shared,
        router_top_k=experts.experts_per_token,
        router_score_func="sigmoid" if sigmoid else "softmax",
        router_route_norm=sigmoid,
        attn_backend="flex",
        moe_comm_backend=STACKS_OF_EXPERTS,
        non_blocking_capacity_factor=Name("None"),
        rope=_rope("ComplexRoPE", model, latent.qk_rope_head_dim),
    )
    parts = _Parts("ComplexRoPE", "_output_linear_init(%d)", more={"mtp_layers": Name("[]")})
    return _code(asked, "deepseek_v3", "DeepSeekV3Model", layers, parts)


def _gpt_oss(asked: Asked) -> ModelCode:
    model, shape = asked.model, asked.shape
    experts, kinds = shape.experts, {(i % 2, layer.attention.sliding_window) for i, layer in enumerate(model.layers)}
    if experts is None or shape.dense or shape.shared or kinds != {(0, 128), (1, None)}:
        raise Unlike("its gpt_oss has experts in all layers, and a window of 128 tokens in every second")
    attn_backend = "flex" if asked.cp > 1 else "varlen"
    layers = call(
        "_build_gptoss_layers",
        n_layers=model.num_hidden_layers,
        dim=model.hidden_size,
        hidden_dim=experts.expert.intermediate_size,
        num_experts=experts.num_experts,
        top_k=experts.experts_per_token,
        load_balance_coeff=1e-3,
        attn_backend=attn_backend,
        moe_comm_backend=STACKS_OF_EXPERTS,
        rope=_rope("CosSinRoPE", model, shape.head_dim),
    )
    heads = (shape.attention.num_attention_heads, shape.attention.num_key_value_heads, shape.head_dim)
    if heads != (64, 8, 64):
        raise Unlike("its gpt_oss has 64 heads and 8 of keys and values, of 64")
    parts = _Parts("CosSinRoPE", "_output_linear_init(%d)")
    return replace(
        _code(asked, "gpt_oss", "GptOssModel", layers, parts), registry=f", attn_backend={source(attn_backend)}"
    )


FAMILIES: dict[str, Callable[[Asked], ModelCode]] = {
    **dict.fromkeys(LLAMA_TYPES, _llama),
    **dict.fromkeys(("qwen3", "qwen3_moe"), _qwen3),
    **dict.fromkeys(DEEPSEEK_TYPES, _deepseek),
    "gpt_oss": _gpt_oss,
}
"""model_type -> the family of torchtitan that builds it."""


@dataclass(frozen=True)
class _Parts:
    """Names that a family has for the rotary class, the head's initial values and the final norm."""

    rope: str
    head_init: str
    norm: str = ""
    more: Mapping[str, Any] | None = None


def _code(asked: Asked, family: str, model_class: str, layers: Call, parts: _Parts) -> ModelCode:
    model = asked.model
    dim, vocab_size, tied = model.hidden_size, model.vocab_size, model.tie_word_embeddings
    embedding_init = "_EMBEDDING_SKIP_INIT" if tied else "_EMBEDDING_INIT"
    norm: Call | Name = call("RMSNorm.Config", normalized_shape=dim, param_init=Name("_NORM_INIT"))
    if parts.norm:
        norm = Name(parts.norm % dim)
    if tied and family not in ("llama3", "qwen3"):
        raise Unlike(f"its {family} has a head of its own")
    head_init = parts.head_init % dim if "%" in parts.head_init else parts.head_init
    config = call(
        f"{model_class}.Config",
        dim=dim,
        vocab_size=vocab_size,
        enable_weight_tying=True if tied else None,
        tok_embeddings=call(
            "Embedding.Config", num_embeddings=vocab_size, embedding_dim=dim, param_init=Name(embedding_init)
        ),
        norm=norm,
        lm_head=call("Linear.Config", in_features=dim, out_features=vocab_size, param_init=Name(head_init)),
        layers=layers,
        **(parts.more or {}),
    )
    private = [
        layers.function,
        embedding_init,
        head_init.partition("(")[0],
        (parts.norm or "_NORM_INIT").partition("(")[0],
    ]
    common = sorted({parts.rope, "Embedding", "Linear", *([] if parts.norm else ["RMSNorm"])})
    names = sorted({*private, model_class, "model_registry"}, key=_by_type)
    imports = (
        _import("torchtitan.models.common", common),
        _import(f"torchtitan.models.{family}", names),
    )
    return ModelCode(imports, model_class, f"    return {source(config, 4, 11)}")


def _import(module: str, names: list[str]) -> str:
    line = f"from {module} import {', '.join(names)}"
    return line if len(line) <= 120 else f"from {module} import (\n" + "".join(f"    {name},\n" for name in names) + ")"


def _rope(name: str, model: Model, dim: int) -> Call:
    return call(f"{name}.Config", dim=dim, max_seq_len=model.max_seq_len, theta=THETA.get(model.model_type, 10000.0))


def _gated(gated: bool, width: int) -> int:
    if not gated:
        raise Unlike("its feed-forward blocks are gated")
    return width


def _by_type(name: str) -> tuple[int, str]:
    """Constants, then classes, then functions."""
    bare = name.lstrip("_")
    return (0 if bare.isupper() else 1 if bare[0].isupper() else 2), name
