"""Vision towers: the encoders that multimodal models put before their decoder, and some that stand alone.

Class defaults and layouts follow the configuration and modelling files of transformers 5.24. Parameters that map the
tower's output (pooling heads, mergers of patches) are counted with the tower.
"""

from __future__ import annotations

from planner.spec.families.encoders import VIT, patch_weights, patches
from planner.spec.families.family import ATTENTION_BIAS, BIAS_EVERYWHERE, LAYER_NORM, NO_BIAS, RMS_NORM, Family
from planner.spec.families.fields import Fields
from planner.spec.model import Attention


def class_token_and_patches(f: Fields) -> int:
    """A class token and a projection of patches without bias (CLIP, Llama 4)."""
    return patch_weights(f) + f.count("hidden_size")


def pooling_head(f: Fields) -> int:
    """SigLIP's projection of patches and, unless switched off, its attention pooling."""
    hidden, size = f.count("hidden_size"), f.count("intermediate_size")
    patch = patch_weights(f) + hidden
    if not f.flag("vision_use_head"):
        return patch
    attention, mlp = 4 * hidden * (hidden + 1), 2 * hidden * size + hidden + size
    return patch + hidden + attention + LAYER_NORM * hidden + mlp


def layer_scales(f: Fields, attention: Attention, sparse: bool) -> int:
    """A learned scale for each of a layer's two branches."""
    return 2 * f.count("hidden_size")


def dinov2_width(f: Fields) -> int:
    """DINOv2's feed-forward width: a multiple of the hidden size, two thirds of it with a gate, rounded up to 8."""
    plain = f.count("mlp_ratio", 4) * f.count("hidden_size")
    return (2 * plain // 3 + 7) // 8 * 8 if f.flag("use_swiglu_ffn") else plain


def dinov2_embeddings(f: Fields) -> int:
    """Projection of patches with bias, class token, mask token."""
    return patch_weights(f) + (3 if f.flag("use_mask_token") else 2) * f.count("hidden_size")


def merger(f: Fields, norm: int) -> int:
    """Qwen-VL's merger: a norm and two linear maps on `spatial_merge_size` squared patches at once."""
    merged = f.count("spatial_merge_size", 2) ** 2 * f.count("hidden_size")
    return norm + merged * (merged + 1) + (merged + 1) * f.count("out_hidden_size")


def qwen2_embeddings(f: Fields) -> int:
    """Projection of patches without bias, and the merger."""
    return patch_weights(f) + merger(f, f.number(f.family.norm) * f.count("hidden_size"))


def qwen3_embeddings(f: Fields) -> int:
    """Projection of patches with bias, the merger, and one more merger for each level that enters the decoder."""
    hidden = f.count("hidden_size")
    merged = f.count("spatial_merge_size", 2) ** 2 * hidden
    levels = len(f.indices("deepstack_visual_indexes") or ())
    deep = levels * merger(f, LAYER_NORM * merged)
    return patch_weights(f) + hidden + merger(f, LAYER_NORM * hidden) + deep


def llama4_embeddings(f: Fields) -> int:
    """Class token, projection of patches, and the perceptron after the pixel shuffle."""
    output = f.count("projector_output_dim", 4096)
    shuffled = f.count("intermediate_size") * f.count("projector_input_dim", 4096)
    return class_token_and_patches(f) + shuffled + output * output


def gemma4_embeddings(f: Fields) -> int:
    """Projection of patches, and a table of positions for each of the two axes."""
    return patch_weights(f) + 2 * f.count("position_embedding_size", 10240) * f.count("hidden_size")


def step_embeddings(f: Fields) -> int:
    """Projection of patches and two convolutions (3 x 3) that each double the width."""
    hidden = f.count("hidden_size")
    down = 9 * hidden * 2 * hidden + 2 * hidden + 9 * 2 * hidden * 4 * hidden + 4 * hidden
    return patch_weights(f) + down


SIGLIP = VIT.but(
    defaults={"max_position_embeddings": patches, "vision_use_head": True}, bias=BIAS_EVERYWHERE, extras=pooling_head
)
QWEN_VISION_KEYS = {
    "num_hidden_layers": ("depth", "num_hidden_layers"),
    "num_attention_heads": ("num_heads", "num_attention_heads"),
    "num_channels": ("in_channels", "in_chans"),
}
QWEN2_VISION = VIT.but(
    keys=QWEN_VISION_KEYS | {"hidden_size": "embed_dim", "out_hidden_size": "hidden_size", "intermediate_size": ()},
    defaults={"hidden_size": 1280, "num_hidden_layers": 32, "num_attention_heads": 16}
    | {"intermediate_size": lambda f: f.count("mlp_ratio", 4) * f.count("hidden_size")}
    | {"out_hidden_size": 3584, "patch_size": 14, "temporal_patch_size": 2},
    outer_norms=0,
    bias=BIAS_EVERYWHERE,
    learned_positions=False,
    extras=qwen2_embeddings,
)

QWEN3_VISION = VIT.but(
    keys=QWEN_VISION_KEYS | {"max_position_embeddings": "num_position_embeddings"},
    defaults={"hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27, "num_attention_heads": 16}
    | {"max_position_embeddings": 2304, "deepstack_visual_indexes": [8, 16, 24], "out_hidden_size": 3584}
    | {"temporal_patch_size": 2},
    outer_norms=0,
    bias=BIAS_EVERYWHERE,
    extras=qwen3_embeddings,
)
IDEFICS3_VISION = SIGLIP.but(
    defaults={"hidden_size": 1152, "num_attention_heads": 16, "patch_size": 32, "vision_use_head": False}
)

FAMILIES: dict[str, Family] = {
    "clip_vision_model": VIT.but(
        defaults={"patch_size": 32}, outer_norms=2, bias=BIAS_EVERYWHERE, extras=class_token_and_patches
    ),
    "siglip_vision_model": SIGLIP,
    "idefics3_vision": IDEFICS3_VISION,
    "smolvlm_vision": IDEFICS3_VISION,
    "dinov2": VIT.but(
        keys={"intermediate_size": ()},
        defaults={"patch_size": 14, "intermediate_size": dinov2_width, "use_mask_token": True},
        gated="use_swiglu_ffn",
        layer_extras=layer_scales,
        extras=dinov2_embeddings,
    ),
    "internvl_vision": VIT.but(
        keys={"qkv_bias": "attention_bias"},
        defaults={"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16}
        | {"image_size": 448, "patch_size": 14, "qkv_bias": False},
        outer_norms=0,
        layer_extras=layer_scales,
        extras=lambda f: patch_weights(f) + 2 * f.count("hidden_size"),
    ),
    "pixtral": VIT.but(
        defaults={"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16}
        | {"image_size": 1024, "patch_size": 16},
        gated=True,
        norm=RMS_NORM,
        bias=NO_BIAS,
        learned_positions=False,
        extras=patch_weights,
    ),
    "qwen2_vl_vision": QWEN2_VISION,
    "qwen2_5_vl_vision": QWEN2_VISION.but(
        keys={
            "hidden_size": "hidden_size",
            "out_hidden_size": "out_hidden_size",
            "intermediate_size": "intermediate_size",
        },
        defaults={"hidden_size": 3584, "intermediate_size": 3420},
        gated=True,
        norm=RMS_NORM,
    ),
    "qwen3_vl_vision": QWEN3_VISION,
    "qwen3_vl_moe_vision": QWEN3_VISION,
    "llama4_vision_model": VIT.but(
        defaults={"hidden_size": 768, "intermediate_size": 5632, "num_hidden_layers": 34, "num_attention_heads": 16}
        | {"image_size": 448, "patch_size": 14},
        outer_norms=2,
        bias=BIAS_EVERYWHERE,
        extras=llama4_embeddings,
    ),
    "gemma4_vision": VIT.but(
        defaults={"num_hidden_layers": 16, "head_dim": 64},
        gated=True,
        norm=RMS_NORM,
        layer_norms=4,
        outer_norms=0,
        bias=ATTENTION_BIAS,
        qk_norm="head",
        learned_positions=False,
        extras=gemma4_embeddings,
    ),
    "step3p5_vision": VIT.but(
        keys={
            "hidden_size": ("width", "hidden_size"),
            "num_hidden_layers": ("layers", "num_hidden_layers"),
            "num_attention_heads": ("heads", "num_attention_heads"),
            "intermediate_size": (),
        },
        defaults={"hidden_size": 1536, "num_hidden_layers": 47, "num_attention_heads": 16}
        | {"intermediate_size": lambda f: f.count("hidden_size") * 8960 // 1536}
        | {"image_size": 728, "patch_size": 14, "max_position_embeddings": patches},
        bias=BIAS_EVERYWHERE,
        layer_extras=layer_scales,
        extras=step_embeddings,
    ),
}
