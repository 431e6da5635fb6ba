"""A model's dimensions as the config.json of Hugging Face transformers, and the class of its blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from planner.emit.shapes import Shape, Unlike, shape_of
from planner.spec.model import Model
from planner.spec.read_model import model_from_config

Keys = Mapping[str, Any]


@dataclass(frozen=True)
class Family:
    """The class of a block in transformers (5.24), and the keys beside the usual ones."""

    block: str
    more: Callable[[Model, Shape], Keys] = lambda _model, _shape: {}
    model_type: str = ""
    """What transformers calls it, where that is another name."""


def hf_config(model: Model) -> dict[str, Any]:
    """The config.json. Raises Unlike, in words, for a model that transformers builds otherwise or that is not known.

    What dimensions do not say (activation, rotary base, router) is the default of the class.
    """
    family = _family(model)
    shape = shape_of(model)
    config = {"model_type": family.model_type or model.model_type, **_usual(model, shape), **family.more(model, shape)}
    again = model_from_config(config, name=model.name, where=model.name)
    if not _alike(again, model):
        raise Unlike(f"transformers builds {config['model_type']} models otherwise")
    return config


def block_class(model: Model) -> str:
    """The class of the model's blocks. Raises Unlike as `hf_config` does."""
    return _family(model).block


def _family(model: Model) -> Family:
    family = FAMILIES.get(model.model_type)
    if family is None:
        raise Unlike(f"no {model.model_type or 'such'} model is written for it, but {', '.join(FAMILIES)}")
    return family


def _alike(one: Model, other: Model) -> bool:
    """Whether two models have the same parts."""
    names = ("hidden_size", "vocab_size", "layers", "tie_word_embeddings", "other_parameters")
    return all(getattr(one, name) == getattr(other, name) for name in names)


def _usual(model: Model, shape: Shape) -> dict[str, Any]:
    blocks = [block for block in (shape.dense, shape.experts and shape.experts.expert) if block]
    return {
        "vocab_size": model.vocab_size,
        "hidden_size": model.hidden_size,
        "intermediate_size": blocks[0].intermediate_size if blocks else model.hidden_size,
        "num_hidden_layers": model.num_hidden_layers,
        "num_attention_heads": shape.attention.num_attention_heads,
        "num_key_value_heads": shape.attention.num_key_value_heads,
        "max_position_embeddings": model.max_seq_len,
        "tie_word_embeddings": model.tie_word_embeddings,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
    }


def _head_dim(_model: Model, shape: Shape) -> Keys:
    return {"head_dim": shape.head_dim}


def _window(model: Model, shape: Shape) -> Keys:
    return {"sliding_window": model.layers[0].attention.sliding_window}


def _window_and_head(model: Model, shape: Shape) -> Keys:
    return {**_window(model, shape), **_head_dim(model, shape)}


def _experts(shape: Shape, number: str) -> dict[str, Any]:
    if shape.experts is None:
        raise Unlike("its layers have no experts")
    return {number: shape.experts.num_experts, "num_experts_per_tok": shape.experts.experts_per_token}


def _mixtral(model: Model, shape: Shape) -> Keys:
    return {**_experts(shape, "num_local_experts"), **_window(model, shape)}


def _qwen3_moe(model: Model, shape: Shape) -> Keys:
    experts = _experts(shape, "num_experts")
    size = shape.experts.expert.intermediate_size if shape.experts else 0
    return {**experts, "moe_intermediate_size": size, "decoder_sparse_step": 1, **_head_dim(model, shape)}


def _qwen2_moe(model: Model, shape: Shape) -> Keys:
    shared = shape.shared.intermediate_size if shape.shared else 0
    keys = dict(_qwen3_moe(model, shape)) | {"shared_expert_intermediate_size": shared}
    del keys["head_dim"]
    return keys


def _olmoe(_model: Model, shape: Shape) -> Keys:
    return _experts(shape, "num_experts")


def _gpt_oss(model: Model, shape: Shape) -> Keys:
    return {**_experts(shape, "num_local_experts"), **_window_and_head(model, shape)}


def _deepseek(_model: Model, shape: Shape) -> Keys:
    latent, experts, shared = shape.attention.latent, shape.experts, shape.shared
    if latent is None or experts is None or shared is None or not shape.dense_first:
        raise Unlike("its layers are not those of DeepSeek-V2 and V3")
    return {
        **_experts(shape, "n_routed_experts"),
        "first_k_dense_replace": shape.dense_layers,
        "moe_intermediate_size": experts.expert.intermediate_size,
        "n_shared_experts": shared.intermediate_size // experts.expert.intermediate_size,
        "n_group": 1,
        "topk_group": 1,
        "q_lora_rank": latent.q_lora_rank or None,
        "kv_lora_rank": latent.kv_lora_rank,
        "qk_nope_head_dim": latent.qk_nope_head_dim,
        "qk_rope_head_dim": latent.qk_rope_head_dim,
        "v_head_dim": latent.v_head_dim,
    }


def _gpt2(model: Model, shape: Shape) -> Keys:
    return {
        "n_embd": model.hidden_size,
        "n_layer": model.num_hidden_layers,
        "n_head": shape.attention.num_attention_heads,
        "n_positions": model.max_seq_len,
    }


def _bloom(model: Model, shape: Shape) -> Keys:
    return {"n_layer": model.num_hidden_layers, "n_head": shape.attention.num_attention_heads}


def _opt(model: Model, shape: Shape) -> Keys:
    return {"ffn_dim": shape.dense.intermediate_size if shape.dense else 0, "word_embed_proj_dim": model.hidden_size}


FAMILIES: dict[str, Family] = {
    "llama": Family("LlamaDecoderLayer", _head_dim),
    "mistral": Family("MistralDecoderLayer", _window_and_head),
    "phi3": Family("Phi3DecoderLayer", _window),
    "qwen2": Family("Qwen2DecoderLayer"),
    "qwen3": Family("Qwen3DecoderLayer", _head_dim),
    "olmo": Family("OlmoDecoderLayer"),
    "olmo2": Family("Olmo2DecoderLayer"),
    "granite": Family("GraniteDecoderLayer"),
    "gemma": Family("GemmaDecoderLayer", _head_dim),
    "starcoder2": Family("Starcoder2DecoderLayer", _window),
    "stablelm": Family("StableLmDecoderLayer"),
    "nemotron": Family("NemotronDecoderLayer", _head_dim),
    "gpt2": Family("GPT2Block", _gpt2),
    "gpt_neox": Family("GPTNeoXLayer"),
    "bloom": Family("BloomBlock", _bloom),
    "opt": Family("OPTDecoderLayer", _opt),
    "mixtral": Family("MixtralDecoderLayer", _mixtral),
    "qwen2_moe": Family("Qwen2MoeDecoderLayer", _qwen2_moe),
    "qwen3_moe": Family("Qwen3MoeDecoderLayer", _qwen3_moe),
    "olmoe": Family("OlmoeDecoderLayer", _olmoe),
    "deepseek_v2": Family("DeepseekV2DecoderLayer", _deepseek),
    "deepseek_v3": Family("DeepseekV3DecoderLayer", _deepseek),
    "kimi_k2": Family("DeepseekV3DecoderLayer", _deepseek, model_type="deepseek_v3"),
    "gpt_oss": Family("GptOssDecoderLayer", _gpt_oss),
}
"""model_type -> family."""
