"""Encoders: BERT and its kin with a masked-language head, vision transformers with a projection of patches.

Class defaults and layouts follow the configuration and modelling files of transformers 5.24.
"""

from __future__ import annotations

from planner.spec.families.family import BIAS_EVERYWHERE, LAYER_NORM, TIED, Bias, Family, shape
from planner.spec.families.fields import Fields, shown
from planner.spec.model import ModelKind


def masked_language_head(f: Fields) -> int:
    """BERT's token types and, unless the architecture is the bare model with its pooler, the head's transform."""
    hidden = f.count("hidden_size")
    types = f.count("type_vocab_size", 0, least=0) * hidden
    dense = hidden * hidden + hidden
    return types + dense + (0 if bare(f) else LAYER_NORM * hidden + f.count("vocab_size"))


def bare(f: Fields) -> bool:
    """Whether the architecture is the model without a head, such as BertModel."""
    architectures = f.value("architectures")
    names = architectures if isinstance(architectures, list) else []
    return any(isinstance(name, str) and name.endswith("Model") for name in names)


def electra_embeddings(f: Fields) -> int:
    """ELECTRA's positions, token types and norm, all as wide as its embedding, the projection and the head."""
    hidden = f.count("hidden_size")
    width = f.count("embedding_width", hidden)
    rows = f.count("max_position_embeddings") + f.count("type_vocab_size", 0, least=0)
    projection = 0 if width == hidden else width * hidden + hidden
    return (
        (rows + LAYER_NORM) * width + projection + hidden * width + width + LAYER_NORM * width + f.count("vocab_size")
    )


def patches(f: Fields) -> int:
    """Patches of an image: image_size over patch_size, both square or (height, width)."""
    size, patch = side_lengths(f, "image_size"), side_lengths(f, "patch_size")
    if min(size[0] // patch[0], size[1] // patch[1]) < 1:
        raise f.error(f"{f.label('patch_size')} {patch} is larger than {f.label('image_size')} {size}")
    return (size[0] // patch[0]) * (size[1] // patch[1])


def side_lengths(f: Fields, name: str) -> tuple[int, int]:
    """Height and width, from one number or a pair."""
    value = f.value(name)
    pair = value if isinstance(value, list) else [value, value]
    if len(pair) != 2 or not all(isinstance(n, int) and not isinstance(n, bool) and 0 < n <= 10**6 for n in pair):
        raise f.error(f"{f.label(name)} must be a whole number of at least 1 or a pair of them, not {shown(value)}")
    return pair[0], pair[1]


def patch_weights(f: Fields) -> int:
    """Weights of the convolution that embeds patches (of `temporal_patch_size` frames)."""
    height, width = side_lengths(f, "patch_size")
    return f.count("num_channels", 3) * f.count("temporal_patch_size", 1) * height * width * f.count("hidden_size")


def vit_embeddings(f: Fields) -> int:
    """ViT's patch projection with bias, its class token, and its pooler or a classifier's few weights."""
    hidden = f.count("hidden_size")
    architectures = f.value("architectures")
    pooler = 0 if architectures and not bare(f) else (hidden + 1) * f.count("pooler_output_size", hidden)
    return patch_weights(f) + 2 * hidden + pooler


BERT = Family(
    defaults=shape(30522, 768, 3072, 12, 12, max_position_embeddings=512, type_vocab_size=2) | TIED,
    kind=ModelKind.ENCODER,
    gated=False,
    norm=LAYER_NORM,
    learned_positions=True,
    extras=masked_language_head,
    bias=BIAS_EVERYWHERE,
)
ROBERTA = BERT.but(defaults={"vocab_size": 50265}, reserved_positions=2)
VIT = Family(
    keys={"vocab_size": ()},
    defaults=shape(0, 768, 3072, 12, 12, image_size=224, patch_size=16, qkv_bias=True)
    | {"max_position_embeddings": lambda f: patches(f) + 1},
    kind=ModelKind.ENCODER,
    gated=False,
    norm=LAYER_NORM,
    bias=Bias(qkv="qkv_bias", out=True, mlp=True),
    learned_positions=True,
    extras=vit_embeddings,
)

FAMILIES: dict[str, Family] = {
    "bert": BERT,
    "roberta": ROBERTA,
    "xlm-roberta": BERT.but(reserved_positions=2),
    "camembert": BERT.but(reserved_positions=2),
    "xlm-roberta-xl": BERT.but(
        defaults=shape(250880, 2560, 10240, 36, 32, max_position_embeddings=514, type_vocab_size=1),
        reserved_positions=2,
    ),
    "megatron-bert": BERT.but(defaults=shape(29056, 1024, 4096, 24, 16)),
    "distilbert": BERT.but(
        keys={
            "hidden_size": ("dim", "hidden_size"),
            "num_hidden_layers": ("n_layers", "num_hidden_layers"),
            "num_attention_heads": ("n_heads", "num_attention_heads"),
            "intermediate_size": ("hidden_dim", "intermediate_size"),
        },
        defaults={"num_hidden_layers": 6, "type_vocab_size": 0},
    ),
    "electra": BERT.but(
        keys={"embedding_width": "embedding_size"},
        defaults=shape(30522, 256, 1024, 12, 4, embedding_width=128),
        outer_norms=0,
        learned_positions=False,
        extras=electra_embeddings,
    ),
    "vit": VIT,
    "deit": VIT,
}
