"""Encoder-decoders: T5 and BART with their kin.

Layouts follow the modelling files of transformers 5.24.
"""

from __future__ import annotations

from dataclasses import replace

from planner.spec.families.family import BIAS_EVERYWHERE, LAYER_NORM, TIED, Family, shape
from planner.spec.families.fields import Fields
from planner.spec.families.layers import one_layer, vocabulary
from planner.spec.model import Layer, Model, ModelKind


def t5(f: Fields) -> Model:
    """T5: relative position biases in the first layer of each stack, a final norm in each."""
    encoder_layers, decoder_layers = _stack_lengths(f)
    hidden, encoder = f.count("hidden_size"), one_layer(f, None, sparse=False)
    biased_layers = encoder_layers + decoder_layers if f.flag("bias_in_every_layer") else 2
    buckets = biased_layers * f.count("relative_attention_num_buckets", 32) * encoder.attention.num_attention_heads
    layers = (encoder,) * encoder_layers + (with_cross_attention(f, encoder, hidden),) * decoder_layers
    return _pair(f, layers, other=2 * hidden + buckets)


def bart(f: Fields) -> Model:
    """BART: learned positions and a norm of the embeddings in each stack; mBART adds a final norm in each."""
    encoder_layers, decoder_layers = _stack_lengths(f)
    hidden = f.count("hidden_size")
    encoder = one_layer(f, None, sparse=False)
    decoder = with_cross_attention(f, one_layer(_decoder_fields(f), None, sparse=False), hidden)
    positions = f.count("max_position_embeddings") + f.family.extra_positions
    norms = f.number(f.family.outer_norms) * LAYER_NORM
    layers = (encoder,) * encoder_layers + (decoder,) * decoder_layers
    return _pair(f, layers, other=2 * (positions + norms) * hidden)


def with_cross_attention(f: Fields, layer: Layer, hidden: int) -> Layer:
    """A decoder's layer: attention to the encoder with its norm and biases beside the layer's own."""
    attention = layer.attention
    width = (attention.num_attention_heads + 2 * attention.num_key_value_heads) * attention.head_dim
    biases = f.flag(f.family.bias.qkv) * width + f.flag(f.family.bias.out) * hidden
    other = layer.other_parameters + f.number(f.family.norm) * hidden + biases
    return replace(layer, cross_attention=attention, other_parameters=other)


def _decoder_fields(f: Fields) -> Fields:
    keys = {"num_attention_heads": "decoder_attention_heads", "intermediate_size": "decoder_ffn_dim"}
    return Fields(f.config, f.family.but(keys=keys), where=f.where, path=f.path)


def _stack_lengths(f: Fields) -> tuple[int, int]:
    length = f.count("num_hidden_layers")
    return length, f.count("num_decoder_layers", length)


def _pair(f: Fields, layers: tuple[Layer, ...], *, other: int) -> Model:
    return Model(
        name="",
        hidden_size=f.count("hidden_size"),
        vocab_size=vocabulary(f),
        layers=layers,
        tie_word_embeddings=f.flag("tie_word_embeddings"),
        other_parameters=other,
        max_seq_len=f.count("max_position_embeddings", 0, least=0),
        kind=ModelKind.ENCODER_DECODER,
    )


def _gated_by_name(f: Fields) -> bool:
    return f.text("feed_forward_proj").startswith("gated-")


def _head_note(f: Fields) -> str:
    if f.config.get("tie_word_embeddings") is not False:
        return ""
    size = vocabulary(f) * f.count("hidden_size")
    return f"transformers 5 ties T5's head all the same; an untied one would add {size / 1e9:.2f}B parameters"


T5 = Family(
    keys={
        "hidden_size": ("d_model", "hidden_size"),
        "num_hidden_layers": ("num_layers", "num_hidden_layers"),
        "num_attention_heads": ("num_heads", "num_attention_heads"),
        "intermediate_size": ("d_ff", "intermediate_size"),
        "head_dim": "d_kv",
        "max_position_embeddings": "n_positions",
        "tie_word_embeddings": (),
        "gated": (),
    },
    defaults=shape(32128, 512, 2048, 6, 8, head_dim=64, gated=_gated_by_name) | TIED,
    kind=ModelKind.ENCODER_DECODER,
    gated="gated",
    build=t5,
    note=_head_note,
)
MT5 = T5.but(defaults=shape(250112, 512, 1024, 8, 6, feed_forward_proj="gated-gelu"))
BART = Family(
    keys={
        "hidden_size": ("d_model", "hidden_size"),
        "num_hidden_layers": ("encoder_layers", "num_hidden_layers"),
        "num_decoder_layers": "decoder_layers",
        "num_attention_heads": ("encoder_attention_heads", "num_attention_heads"),
        "intermediate_size": "encoder_ffn_dim",
    },
    defaults=shape(50265, 1024, 4096, 12, 16, max_position_embeddings=1024, num_decoder_layers=12) | TIED,
    kind=ModelKind.ENCODER_DECODER,
    gated=False,
    norm=LAYER_NORM,
    extra_positions=2,
    build=bart,
    bias=BIAS_EVERYWHERE,
)

FAMILIES: dict[str, Family] = {
    "t5": T5,
    "mt5": MT5,
    "umt5": MT5.but(defaults={"bias_in_every_layer": True}),
    "bart": BART,
    "mbart": BART.but(outer_norms=2),
}
