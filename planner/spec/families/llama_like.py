"""Dense decoders in Llama's manner: norms of weights alone, gated feed-forward blocks, rotary positions.

Class defaults and layouts follow the configuration and modelling files of transformers 5.24, or of the model's own
repository where transformers has no such class (baichuan, chatglm, internlm, minicpm, orion, qwen, xverse).
"""

from __future__ import annotations

from planner.spec.families.family import (
    ATTENTION_BIAS,
    BIAS_BY_KEY,
    LAYER_NORM,
    LAYER_NORM_WITHOUT_BIAS,
    LLAMA_BIAS,
    NORM_WITHOUT_PARAMETERS,
    TIED,
    Bias,
    Family,
    shape,
)
from planner.spec.families.fields import Fields
from planner.spec.model import Attention


def windowed(size: int | None, full_every: int) -> dict[str, int | None]:
    """Class defaults of alternating attention: every n-th layer is full, the rest see a window of `size` tokens."""
    return {"sliding_window": size, "full_attention_every": full_every}


def chatglm_kv_heads(f: Fields) -> int | None:
    """ChatGLM's groups of keys and values; None (as many as heads) without multi-query attention."""
    return f.count("multi_query_group_num", 1) if f.flag("multi_query_attention") else None


def bitnet_sub_norms(f: Fields, attention: Attention, sparse: bool) -> int:
    """Norms before the output and before the down projection."""
    return f.count("hidden_size") + f.count("intermediate_size")


LLAMA = Family(
    defaults=shape(32000, 4096, 11008, 32, 32, max_position_embeddings=2048),
    bias=LLAMA_BIAS,
)
MISTRAL = Family(
    defaults=shape(32000, 4096, 14336, 32, 32, num_key_value_heads=8, max_position_embeddings=131072)
    | {"sliding_window": 4096},
    sliding=True,
)
QWEN2 = Family(
    keys={"first_sliding_layer": "max_window_layers"},
    defaults=shape(151936, 4096, 22016, 32, 32, num_key_value_heads=32, max_position_embeddings=32768)
    | {"sliding_window": 4096, "first_sliding_layer": 28},
    bias=Bias(qkv=True),
    sliding="use_sliding_window",
)
QWEN2_VL_TEXT = QWEN2.but(
    defaults=shape(152064, 8192, 29568, 80, 64, num_key_value_heads=8) | {"first_sliding_layer": 80}
)
QWEN3 = QWEN2.but(defaults={"head_dim": 128}, qk_norm="head", bias=ATTENTION_BIAS)
GEMMA = Family(
    defaults=shape(256000, 3072, 24576, 28, 16, num_key_value_heads=16, head_dim=256, max_position_embeddings=8192)
    | TIED,
    bias=ATTENTION_BIAS,
)
GEMMA2 = GEMMA.but(
    defaults=shape(256000, 2304, 9216, 26, 8, num_key_value_heads=4) | windowed(4096, full_every=2),
    layer_norms=4,
    sliding=True,
)
COHERE = Family(
    defaults=shape(256000, 8192, 22528, 40, 64, max_position_embeddings=8192) | TIED,
    norm=LAYER_NORM_WITHOUT_BIAS,
    layer_norms=1,
    qk_norm="full",
    qk_norm_if="use_qk_norm",
    bias=ATTENTION_BIAS,
)
OLMO2 = LLAMA.but(defaults={"vocab_size": 50304}, qk_norm="full", bias=ATTENTION_BIAS)
GLM = Family(
    defaults=shape(151552, 4096, 13696, 40, 32, num_key_value_heads=2, head_dim=128, max_position_embeddings=131072)
    | {"attention_bias": True},
    bias=Bias(qkv="attention_bias"),
)
INTERNLM = LLAMA.but(defaults={"vocab_size": 103168}, bias=Bias(qkv="bias", out="bias"))

FAMILIES: dict[str, Family] = {
    "llama": LLAMA,
    "mistral": MISTRAL,
    "ministral": MISTRAL,
    "ministral3": MISTRAL.but(
        defaults=shape(131072, 4096, 14336, 34, 32, head_dim=128, max_position_embeddings=262144)
        | {"sliding_window": None}
    ),
    "qwen": Family(
        keys={
            "intermediate_size": (),
            "width_of_both_halves": "intermediate_size",
            "max_position_embeddings": ("seq_length", "max_position_embeddings"),
        },
        defaults=shape(151936, 4096, lambda f: f.count("width_of_both_halves", 22016) // 2, 32, 32),
        bias=Bias(qkv=True),
    ),
    "qwen2": QWEN2,
    "qwen2_vl_text": QWEN2_VL_TEXT,
    "qwen2_5_vl_text": QWEN2_VL_TEXT,
    "qwen3": QWEN3,
    "qwen3_vl_text": QWEN3.but(defaults={"max_position_embeddings": 128000}, sliding=False),
    "gemma": GEMMA,
    "gemma2": GEMMA2,
    "gemma3_text": GEMMA2.but(
        defaults={"vocab_size": 262208, "max_position_embeddings": 131072} | windowed(4096, full_every=6),
        qk_norm="head",
    ),
    "vaultgemma": GEMMA2.but(layer_norms=2),
    "phi3": MISTRAL.but(
        defaults=shape(32064, 3072, 8192, 32, 32, num_key_value_heads=None, max_position_embeddings=4096)
        | {"sliding_window": None},
    ),
    "cohere": COHERE,
    "cohere2": COHERE.but(defaults=windowed(4096, full_every=4), sliding=True, qk_norm=""),
    "olmo": LLAMA.but(defaults={"vocab_size": 50304}, norm=NORM_WITHOUT_PARAMETERS, bias=ATTENTION_BIAS),
    "olmo2": OLMO2,
    "olmo3": OLMO2.but(defaults=windowed(4096, full_every=4), sliding=True),
    "granite": LLAMA,
    "smollm3": LLAMA.but(
        defaults=shape(128256, 2048, 11008, 36, 16, num_key_value_heads=4, max_position_embeddings=32768) | TIED
    ),
    "helium": LLAMA.but(defaults=shape(48000, 2560, 7040, 24, 20, head_dim=128, max_position_embeddings=4096)),
    "stablelm": Family(
        defaults=shape(50304, 2560, 6912, 32, 32, num_key_value_heads=32, max_position_embeddings=4096),
        norm=LAYER_NORM,
        layer_norms=lambda f: 1 if f.flag("use_parallel_residual") else 2,
        bias=Bias(qkv="use_qkv_bias"),
        qk_norm="full",
        qk_norm_if="qk_layernorm",
    ),
    "glm": GLM,
    "glm4": GLM.but(layer_norms=4),
    "glm4v_text": GLM.but(
        defaults={"head_dim": None, "max_position_embeddings": 32768}, layer_norms=4, bias=Bias(qkv=True)
    ),
    "chatglm": Family(
        keys={
            "num_hidden_layers": ("num_layers", "num_hidden_layers"),
            "intermediate_size": ("ffn_hidden_size", "intermediate_size"),
            "vocab_size": ("padded_vocab_size", "vocab_size"),
            "num_key_value_heads": (),
            "head_dim": "kv_channels",
            "max_position_embeddings": "seq_length",
        },
        defaults=shape(65024, 4096, 13696, 28, 32, num_key_value_heads=chatglm_kv_heads, head_dim=128),
        bias=Bias(qkv="add_qkv_bias", out="add_bias_linear", mlp="add_bias_linear"),
    ),
    "exaone": LLAMA.but(
        keys={"num_hidden_layers": ("num_layers", "num_hidden_layers")},
        defaults=shape(102400, 4096, 14336, 32, 32, num_key_value_heads=8, max_position_embeddings=4096),
    ),
    "exaone4": Family(
        defaults=shape(102400, 4096, 16384, 32, 32, num_key_value_heads=32, max_position_embeddings=2048)
        | windowed(4096, full_every=4),
        qk_norm="head",
        sliding=True,
    ),
    "seed_oss": Family(
        defaults=shape(155136, 4096, 27648, 64, 80, num_key_value_heads=8, head_dim=128)
        | {"max_position_embeddings": 524288, "attention_bias": True},
        bias=Bias(qkv="attention_bias", out="attention_out_bias", mlp="mlp_bias"),
    ),
    "ernie4_5": Family(
        defaults=shape(103424, 1024, 3072, 18, 16, num_key_value_heads=2, head_dim=128, max_position_embeddings=131072)
        | TIED,
        bias=BIAS_BY_KEY,
    ),
    "hunyuan_v1_dense": Family(
        defaults=shape(290943, 4096, 11008, 32, 32, max_position_embeddings=2048), qk_norm="head", bias=ATTENTION_BIAS
    ),
    "bitnet": Family(
        defaults=shape(128256, 2560, 6912, 30, 20, num_key_value_heads=5, max_position_embeddings=2048),
        layer_extras=bitnet_sub_norms,
        bias=ATTENTION_BIAS,
    ),
    "internlm": INTERNLM.but(defaults={"bias": True}),
    "internlm2": INTERNLM,
    "internlm3": LLAMA.but(
        keys={"attention_bias": ("attention_bias", "qkv_bias"), "mlp_bias": ("mlp_bias", "bias")},
        defaults=shape(128512, 4096, 10240, 48, 32, num_key_value_heads=2, head_dim=128, max_position_embeddings=32768),
    ),
    "baichuan": Family(
        keys={"max_position_embeddings": ("model_max_length", "max_position_embeddings")},
        defaults=shape(125696, 4096, 11008, 32, 32),
    ),
    "minicpm": Family(
        defaults=shape(32000, 4096, 11008, 32, 32, max_position_embeddings=2048)
        | {"num_experts": 0, "num_experts_per_tok": 2}
        | TIED,
        bias=ATTENTION_BIAS,
        experts=True,
    ),
    "orion": Family(defaults=shape(84608, 4096, 15360, 40, 32, max_position_embeddings=4096), norm=LAYER_NORM),
    "xverse": Family(defaults=shape(100278, 4096, 11008, 32, 32, max_position_embeddings=8192)),
    "yi": Family(defaults=shape(64000, 4096, 11008, 32, 32, num_key_value_heads=4, max_position_embeddings=4096)),
}
