"""Activations per layer against published closed forms."""

import numpy as np
import pytest

from planner.cost.activations import korthikanti_bytes
from planner.estimate.activations import layer_activations
from planner.quantities import GIB
from planner.spec.model import Attention, Layer, Mlp, Model
from planner.spec.plan import ContextKind, Plan, Recompute
from planner.spec.stack import Stack
from planner.spec.workload import Workload

MEGATRON = Stack("megatron", selective_operators=0.0)


def gpt(hidden: int, heads: int, layers: int) -> Model:
    layer = Layer(Attention(heads, heads, hidden // heads), Mlp(4 * hidden, gated=False))
    return Model(name="gpt", hidden_size=hidden, vocab_size=51200, layers=(layer,) * layers)


GPTS = {"22B": (6144, 64, 48), "175B": (12288, 96, 96), "530B": (20480, 128, 105), "1T": (25600, 160, 128)}


@pytest.mark.parametrize("name", GPTS)
@pytest.mark.parametrize("tp", [1, 8])
def test_items_add_up_to_korthikantis_closed_form(name, tp):
    """34 + 5 a s / h bytes per token and hidden unit: unfused attention, dropout, sequence parallelism."""
    hidden, heads, layers = GPTS[name]
    plan = Plan(tp=tp, sequence_parallel=int(tp > 1)).columns()
    workload = Workload(1, 2048, attention="math", dropout=True)
    found = layer_activations(gpt(hidden, heads, layers), plan, workload, MEGATRON).kept[0, 0]
    assert found == pytest.approx(korthikanti_bytes(2048, hidden, heads, 2048, tp=tp), rel=1e-12)


def test_selective_recomputation_leaves_34_bytes_per_token_and_hidden_unit():
    plan = Plan(tp=8, sequence_parallel=1, recompute=Recompute.SELECTIVE).columns()
    workload = Workload(1, 2048, attention="math", dropout=True)
    found = layer_activations(gpt(12288, 96, 96), plan, workload, MEGATRON).kept[0, 0]
    assert found == pytest.approx(34 * 2048 * 12288 / 8)


def test_without_sequence_parallelism_ten_bytes_are_not_divided():
    """Korthikanti et al., equation 2: T h (10 + 24/t + 5 a s / h t)."""
    workload = Workload(1, 2048, attention="math", dropout=True)
    found = layer_activations(gpt(12288, 96, 96), Plan(tp=8).columns(), workload, MEGATRON).kept[0, 0]
    expected = 2048 * 12288 * (10 + 24 / 8 + 5 * 96 * 2048 / 12288 / 8)
    assert found == pytest.approx(expected)


def test_full_recomputation_keeps_the_input_alone():
    plan = Plan(recompute=Recompute.FULL).columns()
    found = layer_activations(gpt(4096, 32, 32), plan, Workload(1, 2048), MEGATRON)
    assert found.kept[0, 0] == 2 * 2048 * 4096
    assert found.whole[0, 0] > 10 * found.kept[0, 0]


def test_fused_attention_saves_the_scores():
    plan = Plan().columns()
    fused, unfused = (
        layer_activations(gpt(4096, 32, 32), plan, Workload(1, 8192, attention=kind), MEGATRON).kept[0, 0]
        for kind in ("flash", "math")
    )
    assert (unfused - fused) / GIB == pytest.approx(5 * 32 * 8192**2 / GIB, rel=0.01)


def test_gathered_keys_and_values_are_those_of_the_whole_sequence():
    layer = Layer(Attention(32, 8, 128), Mlp(14336))
    model = Model(name="gqa", hidden_size=4096, vocab_size=128256, layers=(layer,) * 2)
    kinds = np.array([ContextKind.RING, ContextKind.ALL_GATHER])
    others = 7 * 4096 * 2 * 8 * 128 * 2

    def found(recompute, **conventions):
        plans = Plan(cp=8, context_kind=kinds, recompute=recompute).columns()
        return layer_activations(model, plans, Workload(1, 8 * 4096), Stack("s", **conventions))

    kept = found(Recompute.NONE)
    assert kept.kept[0, 1] - kept.kept[0, 0] == kept.whole[0, 1] - kept.whole[0, 0] == others
    gathered_again = found(Recompute.NONE, keeps_gathered_keys=0.0)
    assert gathered_again.kept[0, 1] == gathered_again.kept[0, 0]
    assert gathered_again.whole[0, 1] - gathered_again.whole[0, 0] == others
    for recompute in (Recompute.FULL, Recompute.SELECTIVE):
        recomputed = found(recompute)
        assert recomputed.kept[0, 1] == recomputed.kept[0, 0]
        assert recomputed.whole[0, 1] - recomputed.whole[0, 0] == others
    plans = Plan(cp=1, context_kind=kinds).columns()
    assert len(set(layer_activations(model, plans, Workload(1, 4096), Stack("s")).whole[0])) == 1


def test_activations_grow_with_the_micro_batch_and_shrink_with_context_parallelism():
    plans = Plan(
        micro_batch_size=np.array([1, 2, 2]), cp=np.array([1, 1, 2]), context_kind=np.array([0, 0, 1])
    ).columns()
    kept = layer_activations(gpt(4096, 32, 32), plans, Workload(4, 4096), MEGATRON).kept[0]
    assert kept[1] == 2 * kept[0] == 2 * kept[2]
