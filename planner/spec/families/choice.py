"""Which family reads a configuration, or why none does."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from typing import Any

from planner.errors import FileFormatError, SpecError
from planner.spec.families import FAMILIES
from planner.spec.families.fields import shown

MIXERS = "layers with state-space, recurrent or linear-attention mixers"
NOT_MODELLED: dict[str, str] = {
    **dict.fromkeys(
        ("bamba", "falcon_h1", "falcon_mamba", "granite_hybrid", "jamba", "kimi_linear", "lfm2", "lfm2_moe", "mamba",
         "mamba2", "minimax", "minimax_text_01", "minimax_m1", "nemotron_h", "olmo_hybrid", "plamo2", "qwen3_5",
         "qwen3_5_moe", "qwen3_5_moe_text", "qwen3_5_text", "qwen3_next", "recurrent_gemma", "rwkv", "rwkv5", "rwkv6",
         "rwkv7", "xlstm", "zamba", "zamba2", "bailing_hybrid"),
        MIXERS,
    ),
    "albert": "one layer's weights shared by all layers",
    "gemma3n": "alternating updates and per-layer embeddings",
    "gemma3n_text": "alternating updates and per-layer embeddings",
    "jetmoe": "attention made of experts",
    "longcat_flash": "layers with two attentions and experts that do nothing",
    "laguna": "layers with different numbers of heads",
    "mimo_v2_flash": "windowed layers with heads of their own",
    "minimax_m3": "block-sparse attention with an indexer",
    "minimax_m3_vl": "block-sparse attention with an indexer",
    "mllama": "cross-attention to images inside the decoder",
    "nemotron-nas": "layers without attention or of different widths",
    "deci": "layers of different widths",
    "deepseek_ref": "compressed attention and hyper-connections",
    "deepseek_v4": "compressed attention and hyper-connections",
    "openelm": "layers of different widths",
    "phi4_multimodal": "adapters for images and speech inside the decoder",
    "phi4mm": "adapters for images and speech inside the decoder",
    "switch_transformers": "encoder-decoders with experts",
    "whisper": "speech encoders",
}  # fmt: skip
"""model_type -> what it has that the planner does not model."""

MIXER_KEYS = (
    "attn_layer_period",
    "conv_L_cache",
    "d_state",
    "hybrid_override_pattern",
    "linear_attn_config",
    "linear_num_key_heads",
    "mamba_d_state",
    "ssm_cfg",
    "ssm_state_size",
    "state_size",
    "time_step_rank",
)
DIMENSIONS = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size")
SIGNS_OF_A_MODEL = (*DIMENSIONS, "model_type", "architectures", "n_embd", "d_model", "n_layer", "num_layers")


def family_of(config: Mapping[str, Any], *, where: str) -> tuple[str, str]:
    """The model_type among `FAMILIES` as which a configuration is read, and a note where it had to be guessed.

    Raises FileFormatError where nothing looks like a model, SpecError where the architecture is not modelled.
    """
    model_type = config.get("model_type")
    if model_type is not None and not isinstance(model_type, str):
        raise FileFormatError(f"model_type must be a text, not {shown(model_type)}", where=where)
    key = (model_type or "").lower()
    refuse_unmodelled(key, where=where)
    if key in FAMILIES:
        return key, ""
    return _guess(config, key, where=where)


def refuse_unmodelled(model_type: str, *, where: str) -> None:
    """Raises SpecError for a model_type that is known to have what the planner does not model."""
    if model_type in NOT_MODELLED:
        what = NOT_MODELLED[model_type]
        raise SpecError(f"model_type {model_type} has {what}, which the planner does not model yet", where=where)


def _guess(config: Mapping[str, Any], key: str, *, where: str) -> tuple[str, str]:
    if not any(sign in config for sign in SIGNS_OF_A_MODEL):
        raise FileFormatError("not a model's configuration: it has no model_type and no hidden_size", where=where)
    named = f"model_type {reprlib.repr(key)} is not known" if key else "there is no model_type"
    if any(config.get(mixer) is not None for mixer in MIXER_KEYS):
        raise SpecError(f"{named}; its keys tell of {MIXERS}, which the planner does not model yet", where=where)
    likeness = _likeness(config, key)
    if not likeness:
        known = "hidden_size, num_hidden_layers, num_attention_heads, intermediate_size, vocab_size, rms_norm_eps"
        raise SpecError(f"{named}, and the keys are not those of a Llama-like decoder ({known})", where=where)
    return likeness, f"{named}: read as {likeness}"


def _likeness(config: Mapping[str, Any], key: str) -> str:
    """The known model_type that a configuration of unknown type resembles, or nothing."""
    named = _architecture(config)
    if named:
        return named
    if not all(dimension in config for dimension in DIMENSIONS) or config.get("is_encoder_decoder"):
        return ""
    if not key and "type_vocab_size" in config:
        return "bert"
    if "rms_norm_eps" not in config and config.get("hidden_act") not in ("silu", "swiglu", "swish"):
        return ""
    if config.get("kv_lora_rank"):
        return "deepseek_v3"
    experts = any(config.get(name) for name in ("num_experts", "num_local_experts", "n_routed_experts"))
    return "deepseek" if experts else "llama"


def _architecture(config: Mapping[str, Any]) -> str:
    """The model_type that the first architecture's name begins with: LlamaForCausalLM is llama."""
    architectures = config.get("architectures")
    first = architectures[0] if isinstance(architectures, list) and architectures else ""
    stem = first.split("For")[0].lower() if isinstance(first, str) else ""
    return next((name for name in FAMILIES if name.replace("_", "").replace("-", "") == stem), "")
