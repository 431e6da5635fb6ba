"""How models of several parts join a vision tower to a decoder: one entry for each outer model_type.

Defaults and layouts follow the configuration and modelling files of transformers 5.24.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from planner.spec.families.family import LAYER_NORM
from planner.spec.families.fields import Fields


@dataclass(frozen=True)
class Joint:
    """What a projector depends on: the fields of the whole and of the tower, the tower's hidden size, the decoder's."""

    outer: Fields
    vision: Fields
    width: int
    hidden: int


Projector = Callable[[Joint], int]
"""Parameters between tower and decoder."""


def no_projector(joint: Joint) -> int:
    """The tower ends in the decoder's hidden size by itself."""
    return 0


def two_linear_maps(joint: Joint) -> int:
    """LLaVA's projector, with biases."""
    return (joint.width + 1) * joint.hidden + (joint.hidden + 1) * joint.hidden


def linear_map(joint: Joint) -> int:
    """One matrix without bias."""
    return joint.width * joint.hidden


def merged_linear_map(joint: Joint) -> int:
    """One matrix without bias, on the square of `scale_factor` patches at once."""
    return joint.outer.count("scale_factor", 2) ** 2 * linear_map(joint)


def patch_merger(joint: Joint) -> int:
    """Mistral 3's norm, merger of four patches, and two matrices."""
    return joint.width + 4 * joint.width * joint.width + linear_map(joint) + joint.hidden * joint.hidden


def shuffled_perceptron(joint: Joint) -> int:
    """InternVL's norm of four patches at once and two linear maps."""
    return 4 * joint.width * LAYER_NORM + (4 * joint.width + 1) * joint.hidden + (joint.hidden + 1) * joint.hidden


@dataclass(frozen=True)
class Wrapper:
    """How one model_type joins a vision tower to a decoder.

    `text` and `vision` are the model_types of parts that name none; `text_defaults` and `vision_defaults` what their
    missing keys mean here, where it differs from those types' own. `tied` is the default of the outer
    tie_word_embeddings.
    """

    text: str
    vision: str
    projector: Projector = no_projector
    tied: bool = False
    text_defaults: Mapping[str, Any] = field(default_factory=dict)
    vision_defaults: Mapping[str, Any] = field(default_factory=dict)


LLAVA = Wrapper(
    text="llama",
    vision="clip_vision_model",
    projector=two_linear_maps,
    vision_defaults={"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24}
    | {"num_attention_heads": 16, "patch_size": 14, "image_size": 336},
)

WRAPPERS: dict[str, Wrapper] = {
    "llava": LLAVA,
    "llava_next": LLAVA,
    "mistral3": Wrapper(
        text="mistral",
        vision="pixtral",
        projector=patch_merger,
        tied=True,
        text_defaults={
            "vocab_size": 131072,
            "hidden_size": 5120,
            "intermediate_size": 32768,
            "num_hidden_layers": 40,
            "head_dim": 128,
            "sliding_window": None,
        },
    ),
    "gemma3": Wrapper(
        text="gemma3_text",
        vision="siglip_vision_model",
        projector=lambda joint: joint.width * (joint.hidden + 1),
        tied=True,
    ),
    "gemma4": Wrapper(text="gemma4_text", vision="gemma4_vision", projector=linear_map, tied=True),
    "paligemma": Wrapper(
        text="gemma",
        vision="siglip_vision_model",
        projector=lambda joint: (joint.width + 1) * joint.hidden,
        tied=True,
        text_defaults={"hidden_size": 2048, "intermediate_size": 16384, "num_hidden_layers": 18}
        | {"num_attention_heads": 8, "num_key_value_heads": 1, "vocab_size": 257152},
        vision_defaults={"hidden_size": 1152, "intermediate_size": 4096, "num_hidden_layers": 27}
        | {"num_attention_heads": 16, "patch_size": 14, "vision_use_head": False},
    ),
    "qwen2_vl": Wrapper(text="qwen2_vl_text", vision="qwen2_vl_vision"),
    "qwen2_5_vl": Wrapper(text="qwen2_vl_text", vision="qwen2_5_vl_vision"),
    "qwen3_vl": Wrapper(text="qwen3_vl_text", vision="qwen3_vl_vision"),
    "qwen3_vl_moe": Wrapper(text="qwen3_vl_moe_text", vision="qwen3_vl_vision"),
    "llama4": Wrapper(
        text="llama4_text",
        vision="llama4_vision_model",
        projector=lambda joint: joint.vision.count("vision_output_dim", 7680) * joint.hidden,
    ),
    "internvl": Wrapper(text="qwen2", vision="internvl_vision", projector=shuffled_perceptron, tied=True),
    "idefics3": Wrapper(text="llama", vision="idefics3_vision", projector=merged_linear_map),
    "smolvlm": Wrapper(text="llama", vision="smolvlm_vision", projector=merged_linear_map),
    "step3p7": Wrapper(text="step3p5", vision="step3p5_vision", projector=lambda joint: 4 * linear_map(joint)),
}
