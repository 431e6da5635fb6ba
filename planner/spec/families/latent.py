"""Decoders with multi-head latent attention, most of them with mixtures of experts.

Class defaults and layouts follow the configuration and modelling files of transformers 5.24.
"""

from __future__ import annotations

from planner.spec.families.experts import DEEPSEEK, routed
from planner.spec.families.family import LAYER_NORM, TIED, Family, shape
from planner.spec.families.fields import Fields


def latent(q_rank: int, kv_rank: int, nope: int, rope: int, value: int | None) -> dict[str, int | None]:
    """Class defaults of latent attention: ranks, and sizes of a head's parts without and with positions, and values."""
    return {
        "q_lora_rank": q_rank,
        "kv_lora_rank": kv_rank,
        "qk_nope_head_dim": nope,
        "qk_rope_head_dim": rope,
        "v_head_dim": value,
    }


def indexer_size(f: Fields) -> int:
    """DeepSeek sparse attention's lightning indexer: projections of queries, keys and head weights, and a norm."""
    heads, width, hidden = f.count("index_n_heads"), f.count("index_head_dim"), f.count("hidden_size")
    return f.count("q_lora_rank") * heads * width + hidden * (width + heads) + LAYER_NORM * width


def shared_indexers(f: Fields) -> int:
    """GLM's indexers, of which some layers use the previous one's: counted outside the layers."""
    length = f.count("num_hidden_layers")
    every, first = f.count("index_topk_freq", 1), f.count("index_skip_topk_offset", 2, least=0)
    named = f.words("indexer_types", length) or [
        "shared" if max(i - first + 1, 0) % every else "full" for i in range(length)
    ]
    return named.count("full") * indexer_size(f)


DEEPSEEK_V3 = DEEPSEEK.but(
    defaults=shape(129280, 7168, 18432, 61, 128, moe_intermediate_size=2048, max_position_embeddings=4096)
    | routed(256, 8, num_shared_experts=1, first_dense_layers=3)
    | latent(1536, 512, 128, 64, 128),
    latent=True,
)
DEEPSEEK_V32 = DEEPSEEK_V3.but(
    defaults={"index_n_heads": 64, "index_head_dim": 128, "max_position_embeddings": 163840},
    layer_extras=lambda f, attention, sparse: indexer_size(f),
)

FAMILIES: dict[str, Family] = {
    "deepseek_v2": DEEPSEEK_V3.but(
        keys={"sparse_every": ()},
        defaults=shape(102400, 4096, 11008, 32, 32, moe_intermediate_size=1407, max_position_embeddings=2048)
        | routed(64, None, num_shared_experts=2, first_dense_layers=0),
    ),
    "deepseek_v3": DEEPSEEK_V3,
    "kimi_k2": DEEPSEEK_V3,
    "deepseek_v32": DEEPSEEK_V32,
    "glm_moe_dsa": DEEPSEEK_V32.but(
        defaults=shape(154880, 6144, 12288, 78, 64, index_n_heads=32, max_position_embeddings=202752)
        | latent(2048, 512, 192, 64, 256),
        layer_extras=None,
        extras=shared_indexers,
    ),
    "glm4_moe_lite": DEEPSEEK_V3.but(
        defaults=shape(154880, 2048, 10240, 47, 20, moe_intermediate_size=1536, max_position_embeddings=202752)
        | routed(64, 4, first_dense_layers=1)
        | latent(768, 512, 192, 64, 256)
    ),
    "mistral4": DEEPSEEK_V3.but(
        defaults=shape(131072, 4096, 12288, 36, 32, max_position_embeddings=1048576)
        | routed(128, 4, first_dense_layers=0)
        | latent(1024, 256, 64, 64, 128)
    ),
    "youtu": DEEPSEEK_V3.but(
        defaults=shape(128256, 2048, 6144, 32, 16, max_position_embeddings=131072) | TIED, experts=False
    ),
    "minicpm3": DEEPSEEK_V3.but(
        defaults=shape(73448, 2560, 6400, 62, 40, max_position_embeddings=32768)
        | latent(768, 256, 64, 32, None)
        | TIED,
        experts=False,
    ),
}
