"""Decoders with mixtures of experts.

Class defaults and layouts follow the configuration and modelling files of transformers 5.24 (deepseek: of the model's
own repository).
"""

from __future__ import annotations

from typing import Any

from planner.errors import SpecError
from planner.spec.families.family import (
    ATTENTION_BIAS,
    BIAS_BY_KEY,
    LAYER_NORM,
    LAYER_NORM_WITHOUT_BIAS,
    LLAMA_BIAS,
    NO_BIAS,
    TIED,
    Bias,
    Family,
    shape,
)
from planner.spec.families.fields import Fields
from planner.spec.families.llama_like import GEMMA2, LLAMA, QWEN2, QWEN3, windowed
from planner.spec.model import Attention


def routed(num_experts: int, visited: int | None, **others: Any) -> dict[str, Any]:
    """Class defaults of a router: how many experts there are, how many each token visits, and what else is said."""
    return {"num_experts": num_experts, "num_experts_per_tok": visited, **others}


def gate_per_head(f: Fields, attention: Attention, sparse: bool) -> int:
    """Step 3.5's gate on each head's output."""
    return f.count("hidden_size") * attention.num_attention_heads


def gate_per_channel(f: Fields, attention: Attention, sparse: bool) -> int:
    """Trinity's gate on each channel of the attention's output, and its bias of the router."""
    router_bias = f.count("num_experts") if sparse else 0
    return f.count("hidden_size") * attention.num_attention_heads * attention.head_dim + router_bias


def refuse_per_layer_embeddings(f: Fields) -> int:
    """Nothing, or SpecError for the small Gemma 4 models, whose every layer has an embedding of its own."""
    if f.count("hidden_size_per_layer_input", 256, least=0) or f.count("num_kv_shared_layers", 0, least=0):
        raise SpecError("per-layer embeddings and shared keys (small Gemma 4) are not modelled yet", where=f.where)
    return 0


def gemma4_router(f: Fields, attention: Attention, sparse: bool) -> int:
    """Gemma 4's three further norms, and the scales of the router's input and of each expert."""
    return 4 * f.count("hidden_size") + f.count("num_experts") if sparse else 0


DEEPSEEK = Family(
    keys={"sparse_every": "moe_layer_freq"},
    defaults=shape(102400, 4096, 11008, 32, 32, moe_intermediate_size=1407, max_position_embeddings=2048),
    experts=True,
    sparse_offset=0,
    bias=ATTENTION_BIAS,
)
MIXTRAL = Family(
    defaults=shape(32000, 4096, 14336, 32, 32, num_key_value_heads=8, max_position_embeddings=131072) | routed(8, 2),
    sliding=True,
    experts=True,
)
GRANITE_MOE = LLAMA.but(defaults=routed(8, 2), bias=ATTENTION_BIAS, experts=True)
QWEN2_MOE = QWEN2.but(
    keys={"sparse_every": "decoder_sparse_step"},
    defaults=shape(151936, 2048, 5632, 24, 16, num_key_value_heads=16, moe_intermediate_size=1408)
    | routed(60, 4, shared_intermediate_size=5632, qkv_bias=True),
    bias=Bias(qkv="qkv_bias"),
    experts=True,
    shared_gate=True,
)
QWEN3_MOE = QWEN3.but(
    keys={"sparse_every": "decoder_sparse_step", "num_shared_experts": (), "shared_intermediate_size": ()},
    defaults=shape(151936, 2048, 6144, 24, 32, num_key_value_heads=4, head_dim=None, moe_intermediate_size=768)
    | routed(128, 8),
    experts=True,
)
GLM4_MOE = Family(
    defaults=shape(151552, 4096, 10944, 46, 96, num_key_value_heads=8, moe_intermediate_size=1408)
    | routed(128, 8, num_shared_experts=1, first_dense_layers=1)
    | {"max_position_embeddings": 131072},
    bias=Bias(qkv="attention_bias"),
    qk_norm="head",
    qk_norm_if="use_qk_norm",
    experts=True,
)
EXAONE_MOE = Family(
    defaults=shape(102400, 4096, 16384, 32, 32, num_key_value_heads=32, moe_intermediate_size=1024)
    | routed(64, 8, num_shared_experts=1, first_dense_layers=1)
    | {"max_position_embeddings": 2048}
    | windowed(4096, full_every=4),
    qk_norm="head",
    sliding=True,
    experts=True,
)

FAMILIES: dict[str, Family] = {
    "mixtral": MIXTRAL,
    "phimoe": MIXTRAL.but(
        defaults=shape(32064, 4096, 6400, 32, 32, num_experts=16),
        norm=LAYER_NORM,
        bias=ATTENTION_BIAS._replace(head="lm_head_bias"),
    ),
    "minimax_m2": MIXTRAL.but(
        defaults=shape(200064, 3072, 1536, 62, 48, head_dim=128, num_experts=256, num_experts_per_tok=8)
        | {"max_position_embeddings": 196608},
        sliding=False,
        qk_norm="full",
    ),
    "qwen2_moe": QWEN2_MOE,
    "qwen3_moe": QWEN3_MOE,
    "qwen3_vl_moe_text": QWEN3_MOE.but(
        defaults=shape(151936, 2048, 5632, 24, 16, num_key_value_heads=16, moe_intermediate_size=1408)
        | routed(60, 4, max_position_embeddings=128000)
        | TIED,
        sliding=False,
    ),
    "olmoe": LLAMA.but(
        defaults=shape(50304, 2048, 2048, 16, 16, num_experts=64, num_experts_per_tok=8, max_position_embeddings=4096),
        bias=ATTENTION_BIAS,
        qk_norm="full",
        experts=True,
    ),
    "flex_olmo": LLAMA.but(
        defaults={"vocab_size": 100352, "num_experts": 7, "num_experts_per_tok": 5, "max_position_embeddings": 4096},
        bias=ATTENTION_BIAS,
        qk_norm="full",
        experts=True,
    ),
    "granitemoe": GRANITE_MOE,
    "granitemoeshared": GRANITE_MOE.but(keys={"shared_intermediate_size": "shared_intermediate_size"}),
    "granitemoehybrid": GRANITE_MOE.but(
        keys={
            "layer_types": ("layer_types", "layers_block_type"),
            "intermediate_size": "shared_intermediate_size",
            "moe_intermediate_size": "intermediate_size",
            "shared_intermediate_size": "shared_intermediate_size",
        },
        defaults={"intermediate_size": 1024, "moe_intermediate_size": 11008, "shared_intermediate_size": 1024}
        | {"layer_types": lambda f: ["linear_attention"] * f.count("num_hidden_layers")},
    ),
    "dbrx": Family(
        keys={
            "hidden_size": ("d_model", "hidden_size"),
            "num_hidden_layers": ("n_layers", "num_hidden_layers"),
            "num_attention_heads": ("n_heads", "num_attention_heads"),
            "num_key_value_heads": "attn_config.kv_n_heads",
            "num_experts": "ffn_config.moe_num_experts",
            "num_experts_per_tok": "ffn_config.moe_top_k",
            "moe_intermediate_size": "ffn_config.ffn_hidden_size",
            "max_position_embeddings": "max_seq_len",
        },
        defaults=shape(32000, 2048, None, 24, 16, num_key_value_heads=1, moe_intermediate_size=3584)
        | routed(4, 1, max_position_embeddings=2048),
        norm=LAYER_NORM_WITHOUT_BIAS,
        experts=True,
    ),
    "gpt_oss": Family(
        defaults=shape(201088, 2880, 2880, 36, 64, num_key_value_heads=8, head_dim=64, max_position_embeddings=131072)
        | routed(128, 4, attention_bias=True)
        | windowed(128, full_every=2),
        sliding=True,
        experts=True,
        bias=ATTENTION_BIAS._replace(expert=True, router=True),
        layer_extras=lambda f, attention, sparse: attention.num_attention_heads,
    ),
    "llama4_text": Family(
        keys={
            "intermediate_size": "intermediate_size_mlp",
            "moe_intermediate_size": "intermediate_size",
            "shared_intermediate_size": "intermediate_size",
            "sparse_layers": "moe_layers",
            "sparse_every": "interleave_moe_layer_step",
            "sliding_window": "attention_chunk_size",
            "full_attention_every": "no_rope_layer_interval",
        },
        defaults=shape(202048, 5120, 16384, 48, 40, num_key_value_heads=8, head_dim=128, moe_intermediate_size=8192)
        | routed(16, 1, shared_intermediate_size=8192)
        | {"max_position_embeddings": 131072}
        | windowed(8192, full_every=4),
        sliding=True,
        experts=True,
        note="attention in chunks is taken as a sliding window of the chunk's size",
        bias=ATTENTION_BIAS,
    ),
    "gemma4_text": GEMMA2.but(
        keys={
            "full_head_dim": "global_head_dim",
            "full_num_key_value_heads": "num_global_key_value_heads",
            "num_experts_per_tok": "top_k_experts",
            "shared_intermediate_size": "intermediate_size",
        },
        defaults={"vocab_size": 262144, "num_hidden_layers": 30, "full_head_dim": 512}
        | {"max_position_embeddings": 131072}
        | windowed(512, full_every=6),
        qk_norm="head",
        key_is_value="attention_k_eq_v",
        experts="enable_moe_block",
        layer_extras=gemma4_router,
        extras=refuse_per_layer_embeddings,
    ),
    "deepseek": DEEPSEEK,
    "glm4_moe": GLM4_MOE,
    "glm4v_moe_text": GLM4_MOE.but(
        defaults={"vocab_size": 151424, "max_position_embeddings": 65536, "attention_bias": True}, qk_norm=""
    ),
    "solar_open": GLM4_MOE.but(
        defaults=shape(196608, 4096, None, 48, 64, moe_intermediate_size=1280, head_dim=128)
        | {"first_dense_layers": 0},
        bias=NO_BIAS,
        qk_norm="",
    ),
    "dots1": QWEN3.but(
        defaults=shape(152064, 4608, 10944, 62, 32, num_key_value_heads=32, moe_intermediate_size=1408, head_dim=None)
        | {"first_sliding_layer": 62, "max_position_embeddings": 2048},
        sliding=True,
        experts=True,
    ),
    "ernie4_5_moe": Family(
        keys={
            "first_dense_layers": "moe_layer_start_index",
            "last_sparse_layer": "moe_layer_end_index",
            "sparse_every": "moe_layer_interval",
        },
        defaults=shape(103424, 2560, 12288, 28, 20, num_key_value_heads=4, moe_intermediate_size=1536)
        | routed(64, 6, num_shared_experts=2, first_dense_layers=1)
        | {"max_position_embeddings": 131072}
        | TIED,
        bias=BIAS_BY_KEY._replace(head="use_bias", router=True),
        experts=True,
    ),
    "exaone_moe": EXAONE_MOE,
    "hunyuan_v1_moe": LLAMA.but(
        keys={"num_shared_experts": ()},
        defaults={"vocab_size": 290943, "num_experts": 1, "num_experts_per_tok": 1, "num_shared_experts": 1},
        bias=ATTENTION_BIAS,
        qk_norm="head",
        experts=True,
    ),
    "step3p5": Family(
        keys={
            "sliding_num_attention_heads": (
                "num_sliding_attention_heads",
                "attention_other_setting.num_attention_heads",
            ),
            "num_key_value_heads": ("num_attention_groups", "num_key_value_heads"),
            "num_experts": ("moe_num_experts", "n_routed_experts", "num_experts", "num_local_experts"),
            "shared_intermediate_size": ("share_expert_dims", "share_expert_dim"),
            "sparse_layers": "moe_layers_enum",
        },
        defaults=shape(128815, 4096, 11264, 45, 64, num_key_value_heads=8, head_dim=128, moe_intermediate_size=1280)
        | routed(288, 8, shared_intermediate_size=1280, first_dense_layers=3)
        | {"max_position_embeddings": 128000}
        | windowed(None, full_every=1),
        qk_norm="head",
        bias=LLAMA_BIAS,
        sliding=True,
        experts=True,
        layer_extras=gate_per_head,
    ),
    "afmoe": Family(
        keys={"first_dense_layers": "num_dense_layers", "full_attention_every": "global_attn_every_n_layers"},
        defaults=shape(200192, 2048, 6144, 32, 16, head_dim=128, moe_intermediate_size=1408)
        | routed(64, 6, num_shared_experts=2, first_dense_layers=1)
        | {"max_position_embeddings": 16384}
        | windowed(1024, full_every=4),
        layer_norms=4,
        qk_norm="head",
        sliding=True,
        experts=True,
        layer_extras=gate_per_channel,
        bias=ATTENTION_BIAS,
    ),
}
