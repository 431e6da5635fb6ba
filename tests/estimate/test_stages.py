"""Layers on pipeline ranks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.estimate.stages import layers_per_rank, stages
from planner.spec.model import Attention, Experts, Layer, Mlp, Model
from planner.spec.plan import Plan

DENSE = Layer(Attention(16, 16, 128), Mlp(8192))
SPARSE = Layer(Attention(16, 16, 128), Mlp(2048), Experts(64, 6, Mlp(2048)))


def model_of(*layers: Layer) -> Model:
    return Model(name="m", hidden_size=2048, vocab_size=32000, layers=layers)


@given(layers=st.integers(1, 130), pp=st.integers(1, 16))
def test_every_layer_is_on_exactly_one_rank(layers, pp):
    if layers >= pp:
        assert sum(layers_per_rank(layers, pp)) == layers


def test_llama_405b_gives_the_first_and_last_rank_one_layer_less():
    assert layers_per_rank(126, 16, first=7, last=7) == [7, *[8] * 14, 7]


def test_one_stage_holds_embedding_and_head():
    stage = stages(model_of(*[DENSE] * 8), Plan().columns())
    assert stage.has_embedding[:, 0].tolist() == [1, 1, 1]
    assert stage.has_head[:, 0].tolist() == [1, 1, 1]


def test_the_middle_rank_is_the_heaviest_of_the_middle():
    model = model_of(DENSE, DENSE, DENSE, *[SPARSE] * 5)
    stage = stages(model, Plan(pp=4).columns())
    assert stage.layers[:, :, 0].T.tolist() == [[2, 0], [0, 2], [0, 2]]


def test_chunks_of_an_interleaved_pipeline_deal_layers_in_turn():
    model = model_of(DENSE, DENSE, *[SPARSE] * 6)
    stage = stages(model, Plan(pp=2, virtual_stages=2).columns())
    assert stage.layers[:, 0, 0].tolist() == [2, 2]
    assert stage.layers[:, 2, 0].tolist() == [0, 4]


@given(pp=st.sampled_from([1, 2, 4, 8]), virtual_stages=st.sampled_from([1, 2, 4]))
def test_all_ranks_of_an_even_split_hold_the_same(pp, virtual_stages):
    stage = stages(model_of(*[DENSE] * 32), Plan(pp=pp, virtual_stages=virtual_stages if pp > 1 else 1).columns())
    assert np.all(stage.layers == 32 / pp)


def test_kinds_are_counted_over_the_whole_model():
    stage = stages(model_of(DENSE, SPARSE, SPARSE), Plan(pp=np.array([1, 3])).columns())
    assert stage.total.tolist() == [1, 2]
    assert stage.layers.sum(axis=0)[:, 0].tolist() == pytest.approx([3, 3, 3])
