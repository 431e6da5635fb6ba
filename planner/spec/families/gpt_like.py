"""Dense decoders in GPT's manner: feed-forward blocks without gate, mostly LayerNorm and biases.

Class defaults and layouts follow the configuration and modelling files of transformers 5.24 (phi-msft: of the
model's own repository).
"""

from __future__ import annotations

from planner.spec.families.family import (
    ATTENTION_BIAS,
    BIAS_BY_KEY,
    BIAS_EVERYWHERE,
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


def four_times_hidden(f: Fields) -> int:
    """The usual width of a feed-forward block without gate."""
    return 4 * f.count("hidden_size")


def falcon_kv_heads(f: Fields) -> int:
    """Falcon's key-value heads: grouped in the new architecture, else one or as many as heads."""
    if f.flag("new_decoder_architecture"):
        return f.count("num_kv_heads", f.count("num_attention_heads"))
    return 1 if f.flag("multi_query") else f.count("num_attention_heads")


def falcon_norms(f: Fields) -> int:
    """Falcon's norms in a layer: two in the new architecture unless it says otherwise; one with parallel attention."""
    if f.flag("new_decoder_architecture"):
        return f.count("num_ln_in_parallel_attn", 2)
    return 1 if f.flag("parallel_attn") else 2


def opt_projections(f: Fields) -> int:
    """OPT-350M's projections between the widths of the embedding and of the layers."""
    hidden = f.count("hidden_size")
    width = f.count("embedding_width", hidden)
    return 0 if width == hidden else 2 * width * hidden


def alternating(f: Fields) -> list[str]:
    """GPT-Neo's layers: full attention, then a window, in turn."""
    return [("global", "local")[i % 2] for i in range(f.count("num_hidden_layers"))]


GPT2 = Family(
    keys={
        "hidden_size": ("n_embd", "hidden_size"),
        "num_hidden_layers": ("n_layer", "num_hidden_layers"),
        "num_attention_heads": ("n_head", "num_attention_heads"),
        "num_key_value_heads": (),
        "intermediate_size": ("n_inner", "intermediate_size"),
        "max_position_embeddings": ("n_positions", "n_ctx", "max_position_embeddings"),
    },
    defaults=shape(50257, 768, four_times_hidden, 12, 12, max_position_embeddings=1024) | TIED,
    gated=False,
    norm=LAYER_NORM,
    learned_positions=True,
    bias=BIAS_EVERYWHERE,
)
GPTJ = Family(
    keys=GPT2.keys,
    defaults=shape(50400, 4096, four_times_hidden, 28, 16, max_position_embeddings=2048),
    gated=False,
    norm=LAYER_NORM,
    layer_norms=1,
    bias=Bias(mlp=True, head=True),
)
PHI = Family(
    defaults=shape(51200, 2048, 8192, 24, 32, max_position_embeddings=2048),
    gated=False,
    norm=LAYER_NORM,
    layer_norms=1,
    bias=BIAS_EVERYWHERE._replace(head=True),
    qk_norm="head",
    qk_norm_if="qk_layernorm",
    qk_norm_size=LAYER_NORM,
)

FAMILIES: dict[str, Family] = {
    "gpt2": GPT2,
    "gpt_bigcode": GPT2.but(
        defaults={
            "num_key_value_heads": lambda f: 1 if f.flag("multi_query") else None,
            "multi_query": True,
        }
    ),
    "gptj": GPTJ,
    "codegen": GPTJ,
    "gpt_neo": Family(
        keys={
            "num_hidden_layers": ("num_layers", "num_hidden_layers"),
            "num_attention_heads": ("num_heads", "num_attention_heads"),
            "sliding_window": "window_size",
        },
        defaults=shape(50257, 2048, four_times_hidden, 24, 16, max_position_embeddings=2048)
        | {"sliding_window": 256, "layer_types": alternating}
        | TIED,
        gated=False,
        norm=LAYER_NORM,
        bias=Bias(out=True, mlp=True),
        learned_positions=True,
        sliding=True,
    ),
    "gpt_neox": Family(
        defaults=shape(50432, 6144, 24576, 44, 64, max_position_embeddings=2048, attention_bias=True),
        gated=False,
        norm=LAYER_NORM,
        bias=ATTENTION_BIAS._replace(mlp=True),
    ),
    "bloom": Family(
        keys={
            "hidden_size": ("n_embed", "hidden_size"),
            "num_hidden_layers": ("n_layer", "num_hidden_layers"),
            "num_attention_heads": ("n_head", "num_attention_heads"),
            "intermediate_size": (),
            "max_position_embeddings": "seq_length",
        },
        defaults=shape(250880, 64, four_times_hidden, 2, 8) | TIED,
        gated=False,
        norm=LAYER_NORM,
        outer_norms=2,
        bias=BIAS_EVERYWHERE,
    ),
    "opt": Family(
        keys={"intermediate_size": "ffn_dim", "embedding_width": "word_embed_proj_dim"},
        defaults=shape(50272, 768, 3072, 12, 12, max_position_embeddings=2048)
        | {"enable_bias": True, "do_layer_norm_before": True, "layer_norm_elementwise_affine": True}
        | TIED,
        gated=False,
        norm=lambda f: LAYER_NORM if f.flag("layer_norm_elementwise_affine") else NORM_WITHOUT_PARAMETERS,
        outer_norms=lambda f: int(f.flag("do_layer_norm_before") and not f.flag("_remove_final_layer_norm")),
        bias=Bias(qkv="enable_bias", out="enable_bias", mlp="enable_bias"),
        learned_positions=True,
        extra_positions=2,
        extras=opt_projections,
    ),
    "mpt": Family(
        keys={
            "hidden_size": ("d_model", "hidden_size"),
            "num_hidden_layers": ("n_layers", "num_hidden_layers"),
            "num_attention_heads": ("n_heads", "num_attention_heads"),
            "intermediate_size": (),
            "max_position_embeddings": "max_seq_len",
        },
        defaults=shape(50368, 2048, lambda f: f.count("expansion_ratio", 4) * f.count("hidden_size"), 24, 16)
        | {"max_position_embeddings": 2048}
        | TIED,
        gated=False,
        norm=LAYER_NORM_WITHOUT_BIAS,
    ),
    "falcon": Family(
        keys={
            "hidden_size": ("n_embed", "hidden_size"),
            "num_hidden_layers": ("num_hidden_layers", "n_layer"),
            "num_attention_heads": ("num_attention_heads", "n_head"),
            "num_key_value_heads": (),
            "intermediate_size": ("ffn_hidden_size", "intermediate_size"),
        },
        defaults=shape(65024, 4544, four_times_hidden, 32, 71, num_key_value_heads=falcon_kv_heads)
        | {"max_position_embeddings": 2048, "multi_query": True, "parallel_attn": True}
        | TIED,
        gated=False,
        norm=LAYER_NORM,
        layer_norms=falcon_norms,
        bias=Bias(qkv="bias", out="bias", mlp="bias"),
    ),
    "phi": PHI,
    "phi-msft": PHI.but(keys=GPT2.keys, defaults={"intermediate_size": four_times_hidden}),
    "persimmon": PHI.but(
        defaults=shape(262144, 4096, 16384, 36, 64, max_position_embeddings=16384, qk_layernorm=True),
        layer_norms=2,
        bias=BIAS_EVERYWHERE,
    ),
    "starcoder2": Family(
        defaults=shape(49152, 3072, 12288, 30, 24, num_key_value_heads=2, max_position_embeddings=4096)
        | {"use_bias": True}
        | TIED,
        gated=False,
        norm=LAYER_NORM,
        sliding=True,
        bias=BIAS_BY_KEY,
    ),
    "nemotron": Family(
        defaults=shape(256000, 6144, 24576, 32, 48, max_position_embeddings=4096),
        gated=False,
        norm=LAYER_NORM,
        bias=LLAMA_BIAS,
    ),
    "arcee": Family(
        defaults=shape(32000, 2560, 18432, 32, 32, max_position_embeddings=4096),
        gated=False,
        bias=LLAMA_BIAS,
    ),
    "apertus": Family(
        defaults=shape(131072, 4096, 14336, 32, 32, max_position_embeddings=65536),
        gated=False,
        qk_norm="head",
        layer_extras=lambda f, attention, sparse: 2,
        bias=ATTENTION_BIAS,
    ),
    "nanochat": Family(
        defaults=shape(50304, 768, 8192, 12, 6, max_position_embeddings=2048),
        gated=False,
        norm=NORM_WITHOUT_PARAMETERS,
        bias=ATTENTION_BIAS,
    ),
}
