"""The table of families: every entry is complete, and fuzzed input never gets past the checks."""

import copy
import json
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.errors import FileFormatError, SpecError
from planner.spec.families import FAMILIES
from planner.spec.families.choice import NOT_MODELLED
from planner.spec.families.family import Family
from planner.spec.families.multimodal import WRAPPERS
from planner.spec.model import ModelKind
from planner.spec.read_model import model_from_config

CONFIGS = Path(__file__).parents[1] / "data" / "configs"
INCOMPLETE = {
    "deepseek": "num_experts",
    "deepseek_v2": "num_experts_per_tok",
    "dots1": "num_experts",
    "gemma4_text": "per-layer embeddings",
    "glm4_moe": "num_attention_heads 96 does not divide",
    "glm4v_moe_text": "num_attention_heads 96 does not divide",
    "granitemoehybrid": "linear_attention",
}
"""Types whose class defaults alone make no model that can be read, and why."""
DEFAULT_COUNTS = {
    "bart": 406_291_456,
    "bert": 109_514_298,
    "clip_vision_model": 87_456_000,
    "distilbert": 66_985_530,
    "gemma": 8_537_680_896,
    "gpt_neo": 1_315_575_808,
    "gpt_neox": 20_554_567_680,
    "gpt_oss": 116_829_156_672,
    "phi": 1_418_270_720,
    "siglip_vision_model": 92_884_224,
    "starcoder2": 3_030_371_328,
}
"""Parameters of the class defaults: published counts of the checkpoints that have just these dimensions."""


def read(config):
    return model_from_config(config, name="test", where="config.json")


def refused(config):
    """The refusal, or nothing where the configuration is read as a sound model."""
    try:
        model = read(config)
    except SpecError as error:
        return str(error)
    assert 0 < model.active_parameters <= model.parameters <= 10**16
    assert all(layer.other_parameters >= 0 for layer, _ in model.layer_kinds)
    assert all("\n" not in note for note in model.notes)
    return ""


@pytest.mark.parametrize("model_type", sorted(FAMILIES))
def test_class_defaults_alone_make_a_model_or_say_what_is_missing(model_type):
    if model_type in INCOMPLETE:
        with pytest.raises(SpecError, match=INCOMPLETE[model_type]):
            read({"model_type": model_type})
        return
    model = read({"model_type": model_type})
    assert model.parameters >= model.active_parameters > 0
    assert model.model_type == model_type


@pytest.mark.parametrize("model_type", sorted(DEFAULT_COUNTS))
def test_class_defaults_of_published_checkpoints_count_as_published(model_type):
    assert read({"model_type": model_type}).parameters == DEFAULT_COUNTS[model_type]


@pytest.mark.parametrize("model_type", sorted(WRAPPERS))
def test_wrappers_join_known_parts(model_type):
    wrapper = WRAPPERS[model_type]
    assert wrapper.text in FAMILIES
    assert FAMILIES[wrapper.vision].kind is ModelKind.ENCODER


@pytest.mark.parametrize("model_type", sorted(NOT_MODELLED))
def test_what_is_not_modelled_is_refused_by_name(model_type):
    with pytest.raises(SpecError, match="which the planner does not model yet") as caught:
        read({"model_type": model_type, "hidden_size": 64})
    assert not isinstance(caught.value, FileFormatError)
    assert model_type not in FAMILIES


def test_a_family_differs_from_its_parent_only_where_it_says():
    qwen3, qwen2 = FAMILIES["qwen3"], FAMILIES["qwen2"]
    differing = {field.name for field in fields(Family) if getattr(qwen3, field.name) != getattr(qwen2, field.name)}
    assert differing == {"defaults", "bias", "qk_norm"}


SEEDS = [
    seed for seed in (json.loads(path.read_text()) for path in sorted(CONFIGS.glob("*.json"))) if isinstance(seed, dict)
] + [{"model_type": model_type} for model_type in (*FAMILIES, *WRAPPERS)]
KEYS = sorted(
    {key for seed in SEEDS for key in seed}
    | {key for seed in SEEDS for v in seed.values() if isinstance(v, dict) for key in v}
)
WORDS = [*FAMILIES, "full_attention", "sliding_attention", "linear_attention", "gated-gelu"]
JUNK = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-3, 300),
        st.integers(-(10**30), 10**30),
        st.floats(),
        st.text(max_size=12),
        st.sampled_from(WORDS),
    ),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=8,
)


@st.composite
def damaged_configs(draw):
    config = copy.deepcopy(draw(st.sampled_from(SEEDS)))
    for _ in range(draw(st.integers(1, 5))):
        tables = [config, *(value for value in config.values() if isinstance(value, dict))]
        table = draw(st.sampled_from(tables))
        key = draw(st.sampled_from(sorted(table) or KEYS) | st.sampled_from(KEYS))
        if draw(st.booleans()):
            table.pop(key, None)
        else:
            table[key] = draw(JUNK)
    return config


@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow])
@given(damaged_configs())
def test_a_damaged_configuration_is_a_sound_model_or_one_line_of_refusal(config):
    message = refused(config)
    assert "\n" not in message
    assert len(message) < 500


@settings(max_examples=100)
@given(JUNK)
def test_junk_instead_of_a_configuration_is_refused_in_one_line(junk):
    assert "\n" not in refused(junk)
