"""Simulated steps of plans: against the closed forms, under other schedules and on other accelerators."""

from dataclasses import replace

import numpy as np
import pytest

from planner.answer.agreement import agreement
from planner.answer.choices import Choices
from planner.answer.evaluate import evaluate, links_of
from planner.answer.question import ask
from planner.answer.recommend import answer, recommend
from planner.answer.simulation import Circumstances, simulated, simulated_table
from planner.errors import FileFormatError, SpecError
from planner.estimate.durations import durations
from planner.estimate.memory import memory_timeline
from planner.estimate.records import Role
from planner.simulate.order_text import order_text
from planner.simulate.schedules import known_order
from planner.simulate.simulation import simulate
from planner.spec.durations_file import OwnTable

MEGATRON = Choices(stack="megatron-core")
FIX = "tp=4,pp=4,virtual_stages=1,num_microbatches=8,schedule=one_f_one_b"
PLANS = {
    "FSDP": ("llama-3.1-8b", "2xdgx-h100", Choices(stack="torchtitan", fix="sharding=zero3,pp=1,tp=1,cp=1")),
    "FSDP kept": ("llama-3.1-8b", "2xdgx-h100", Choices(fix="sharding=zero3_keep,pp=1,tp=1,cp=1")),
    "all recomputed": ("llama-3.1-8b", "1xdgx-a100", Choices(fix="sharding=zero3,pp=1,recompute=full")),
    "DDP": ("llama-3.2-1b", "1xdgx-h100", Choices(fix="sharding=none,pp=1,tp=1,cp=1,dp_replicate=8")),
    "HSDP": ("llama-3.1-8b", "4xdgx-h100", Choices(fix="dp_replicate=4,dp_shard=8,sharding=zero3,pp=1")),
    "TP": ("llama-3.1-70b", "2xdgx-h100", Choices(stack="megatron-core", fix="tp=8,pp=1")),
    "ring": ("llama-3.1-8b", "2xdgx-h100", Choices(seq_len=32768, fix="cp=8,context_kind=ring,pp=1")),
    "Ulysses": ("llama-3.1-8b", "2xdgx-h100", Choices(seq_len=32768, fix="cp=8,context_kind=ulysses,pp=1")),
    "experts": ("qwen3-30b-a3b", "4xdgx-h100", Choices(fix="ep=8,pp=1")),
    "LoRA": ("llama-3.1-8b", "1xdgx-h100", Choices(method="lora")),
    "1F1B": ("llama-3.1-70b", "8xdgx-h100", replace(MEGATRON, fix=FIX)),
    "interleaved": ("llama-3.1-70b", "8xdgx-h100", replace(MEGATRON, fix="tp=4,pp=4,virtual_stages=5")),
    "dense layers first": ("deepseek-v2-lite", "2xdgx-h100", Choices(fix="pp=2,schedule=one_f_one_b,ep=4")),
}


@pytest.fixture(scope="module")
def best():
    """The best plan for a model on a cluster, each asked once."""
    known = {}

    def found(name):
        if name not in known:
            known[name] = answer(ask(*PLANS[name]), top=1).best
        return known[name]

    return found


@pytest.mark.parametrize("name", PLANS)
def test_closed_forms_and_simulation_agree(best, name):
    """Gathers beside blocking collectives of another axis cost no compute, which the closed form leaves out."""
    found = agreement(best(name))
    assert found.difference == pytest.approx(0, abs=0.13 if name == "TP" else 0.03)
    assert sum(found.closed.values()) == pytest.approx(found.ranked.step_time)
    assert sum(found.played.values()) == pytest.approx(found.step.simulation.makespan)
    assert found.ranked.peak == pytest.approx(found.peak, rel=0.05)


@pytest.mark.parametrize("name", ["TP", "1F1B", "interleaved", "experts", "Ulysses", "all recomputed"])
def test_compute_is_the_same_to_rounding(best, name):
    found = agreement(best(name))
    for term in ("matmul", "attention", "elementwise", "recompute", "optimizer", "fixed"):
        assert found.played[term] == pytest.approx(found.closed[term], rel=1e-6), term


@pytest.mark.parametrize("name", ["1F1B", "interleaved", "dense layers first"])
def test_a_played_schedule_is_the_simulation_without_data_parallel_transfers(best, name):
    """What `recommend` plays with stage totals, and the whole step with every segment."""
    ranked = best(name)
    table = simulated(ranked).simulation.durations
    silent = {name: 0.0 for name in ("gather", "gather_again", "reduce", "gather_once", "reduce_once")}
    stages = tuple(tuple(replace(block, **silent) for block in stage) for stage in table.stages)
    makespan = simulate(replace(table, stages=stages, links={}), simulated(ranked).simulation.order).makespan
    assert float(ranked.time.total - ranked.time.dp_exposed) == pytest.approx(makespan, rel=1e-9)


def test_each_rank_holds_what_the_closed_form_says_of_it(best):
    ranked = best("1F1B")
    asked = ranked.question
    timeline = memory_timeline(asked.model, ranked.plan, asked.workload, asked.stack)
    played = simulated(ranked).simulation.memory
    for role, rank in ((Role.FIRST, 0), (Role.LAST, -1)):
        fullest = max(float(use.peak) for (each, _), use in timeline.items() if each is role)
        assert played[rank].peak == pytest.approx(fullest, rel=0.02)


def test_zero_bubble_and_v_schedules_shorten_the_step_of_a_plan(best):
    ranked = best("1F1B")
    took = {name: simulated(ranked, Circumstances(name)).simulation for name in ("1f1b", "zb-h1", "zb-v")}
    assert took["zb-v"].makespan < took["zb-h1"].makespan < took["1f1b"].makespan
    assert took["zb-v"].bubble_fraction < took["zb-h1"].bubble_fraction < took["1f1b"].bubble_fraction


def test_a_v_schedule_has_embedding_and_head_on_the_first_rank(best):
    table = simulated(best("1F1B"), Circumstances("zb-v")).simulation.durations
    assert (table.rank_of[0], table.rank_of[-1]) == (0, 0)
    assert (table.stages[0][0].name, table.stages[-1][-1].name) == ("embedding", "head")
    assert sum(len(stage) for stage in table.stages) == 80 + 2


def test_an_order_of_ones_own_is_played_from_a_file(best, tmp_path):
    ranked = best("1F1B")
    path = tmp_path / "own.csv"
    path.write_text(order_text(known_order("gpipe", 4, 8)))
    own = simulated(ranked, Circumstances(str(path)))
    assert own.simulation.makespan == simulated(ranked, Circumstances("gpipe")).simulation.makespan
    path.write_text(order_text(known_order("gpipe", 4, 4)))
    with pytest.raises(SpecError, match="4 ranks and 4 micro-batches; the plan has 4 and 8"):
        simulated(ranked, Circumstances(str(path)))


def test_a_slow_rank_costs_its_share_of_the_step(best):
    ranked = best("1F1B")
    usual = simulated(ranked).simulation
    slow = simulated(ranked, Circumstances(slow={2: 1.5})).simulation
    assert slow.ranks[2].busy == pytest.approx(1.5 * usual.ranks[2].busy, rel=0.02)
    added = slow.makespan - usual.makespan
    assert 0.7 * 0.5 * usual.ranks[2].busy < added < 1.05 * 0.5 * usual.ranks[2].busy


def test_ranks_on_another_accelerator_take_as_long_as_it_does(best):
    ranked = best("1F1B")
    mixed = simulated(ranked, Circumstances(parts={3: "a100-sxm-80gb"})).simulation
    usual = simulated(ranked).simulation
    assert mixed.ranks[0].busy == pytest.approx(usual.ranks[0].busy)
    assert 1.8 < mixed.ranks[3].busy / usual.ranks[3].busy < 3.2


def test_jitter_is_drawn_from_its_seed(best):
    ranked = best("1F1B")
    first, again, other = (
        simulated(ranked, Circumstances(jitter=0.05, seed=seed)).simulation.makespan for seed in (1, 1, 2)
    )
    assert first == again != other


@pytest.mark.parametrize(
    ("circumstances", "said"),
    [
        (Circumstances("1f2b"), "1f1b"),
        (Circumstances(slow={4: 2.0}), "pipeline ranks 0 to 3"),
        (Circumstances(slow={1: 0.0}), "factor above 0"),
        (Circumstances(jitter=-1), "jitter must be 0 or more"),
        (Circumstances(parts={9: "a100-sxm-80gb"}), "pipeline ranks 0 to 3"),
        (Circumstances(parts={0: "a100-sxm-80"}), "a100-sxm-80gb"),
        (Circumstances("dualpipe-v", slow={0: -1}), "factor above 0"),
    ],
)
def test_what_does_not_go_with_the_plan_is_refused(best, circumstances, said):
    with pytest.raises(SpecError, match=said):
        simulated(best("1F1B"), circumstances)


def own_table(stages=4, **changes):
    stage = {"F": 1.0, "B": 2.0}
    values = {"schedule": "1f1b", "num_microbatches": 8, "ranks": 0, "p2p": 0.0, "optimizer": 0.0, "penalty": 0.0}
    return OwnTable(stages=(stage,) * stages, **(values | changes))


def test_a_table_of_ones_own_takes_what_one_counts_by_hand():
    assert simulated_table(own_table()).simulation.makespan == (8 + 4 - 1) * 3
    assert simulated_table(own_table(optimizer=5.0)).simulation.makespan == (8 + 4 - 1) * 3 + 5
    two_chunks = simulated_table(own_table(schedule="interleaved", ranks=2)).simulation
    assert (two_chunks.order.num_ranks, two_chunks.makespan) == (2, 8 * 6 + 3)


def test_a_table_whose_stages_do_not_go_with_its_schedule_is_refused():
    with pytest.raises(SpecError, match="3 stages cannot be dealt evenly to 2 ranks"):
        simulated_table(own_table(3, ranks=2))
    with pytest.raises(SpecError, match="made for 2"):
        simulated_table(own_table(4, schedule="zb-v", ranks=4))
    with pytest.raises(SpecError, match="stage 0 needs I and W in place of B"):
        simulated_table(own_table(schedule="zb-h1"))
    with pytest.raises(SpecError, match="knows no accelerators"):
        simulated_table(own_table(), Circumstances(parts={0: "h100-sxm"}))
    with pytest.raises(FileFormatError, match="has 4 stages"):
        own_table().durations((0, 1))


def test_recommend_puts_plans_in_the_order_of_their_played_steps():
    found = recommend("llama-3.1-8b", "4xaws-g5.48xlarge", top=8)
    times = [plan.step_time for plan in found.plans]
    assert times == sorted(times)
    for plan in found.plans:
        assert evaluate(found.question, plan.plan).step_time == pytest.approx(plan.step_time)


def test_the_table_of_a_plan_deals_every_layer_once(best):
    for name in PLANS:
        ranked = best(name)
        asked = ranked.question
        table = durations(
            asked.model,
            ranked.plan,
            asked.workload,
            asked.cluster,
            links_of(asked, ranked.plan),
            profile=asked.profile,
            stack=asked.stack,
        )
        layers = [block for stage in table.stages for block in stage if block.name.startswith("layer")]
        assert len(layers) == asked.model.num_hidden_layers, name
        shares = np.zeros(table.num_ranks)
        for rank, stage in zip(table.rank_of, table.stages, strict=True):
            shares[rank] += sum(block.reduce_once for block in stage)
        assert (shares >= 0).all()


def test_paired_passes_hide_the_exchange_of_experts():
    ranked = answer(ask("deepseek-v2-lite", "2xdgx-h100", Choices(fix="pp=2,ep=8,num_microbatches=8")), top=1).best
    paired = simulated(ranked, Circumstances("dualpipe-v")).simulation
    alone = simulated(ranked, Circumstances("zb-v")).simulation
    assert any(action.paired for action in paired.order.actions[0])
    assert sum(rank.exposed for rank in paired.ranks) < 0.8 * sum(rank.exposed for rank in alone.ranks)
