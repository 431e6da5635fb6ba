from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import NoFeasiblePlan, SpecError
from planner.estimate.stages import layers_per_rank
from planner.quantities import divisors
from planner.search.canonical import is_canonical
from planner.search.enumerate import Bounds, enumerate_plans
from planner.search.fix import parse_fix
from planner.search.layers import end_layers
from planner.search.legality import legal
from planner.spec.cluster import Wiring
from planner.spec.plan import (
    AXES_OF_ORDER,
    ContextKind,
    Plan,
    RankOrder,
    Recompute,
    Schedule,
    Sharding,
)
from planner.spec.stack import Stack
from planner.spec.workload import Workload

UNBOUNDED = Bounds(tp_nodes=100, cp_tokens=1, micro_batch_tokens=10**9, shards_across_nodes=True, virtual_stages=10**6)


def every_plan(world, layers, batch, experts):
    """All combinations of field values that could make a plan, most of them illegal."""
    ranks = divisors(world)
    degrees = np.meshgrid(ranks, ranks, ranks, ranks, ranks, indexing="ij")
    tp, pp, cp, shard, replicate = (axis.ravel() for axis in degrees)
    used = tp * pp * cp * shard * replicate == world
    mesh = np.stack([tp, pp, cp, shard, replicate])[:, used]
    ep = divisors(experts)
    axes = np.meshgrid(
        np.arange(mesh.shape[1]), ep, [0, 1], divisors(batch), divisors(layers), list(Sharding), list(Schedule),
        list(ContextKind), list(RankOrder), [0, 1], indexing="ij",
    )  # fmt: skip
    at, ep, divided, micro, chunks, sharding, schedule, kind, order, sequence = (axis.ravel() for axis in axes)
    tp, pp, cp, shard, replicate = mesh[:, at]
    rows = (batch % (micro * shard * replicate) == 0) & ((divided == 0) | (tp > 1))
    plans = Plan(
        tp=tp, pp=pp, cp=cp, dp_shard=shard, dp_replicate=replicate, ep=ep, expert_tp=np.where(divided, tp, 1),
        micro_batch_size=micro, num_microbatches=np.maximum(batch // (micro * shard * replicate), 1),
        virtual_stages=chunks, sharding=sharding, schedule=schedule, context_kind=kind, rank_order=order,
        sequence_parallel=sequence,
    ).columns()  # fmt: skip
    return plans[rows]


def order_of_passes(plan):
    """What each pipeline rank does, forwards (F) and backwards (B), where the schedule's name does not say it all."""
    m, pp = plan.num_microbatches, plan.pp
    if plan.schedule == Schedule.GPIPE:
        return ("F" * m + "B" * m,) * pp
    if plan.schedule == Schedule.ONE_F_ONE_B:
        first = [min(pp - rank, m) for rank in range(pp)]
        return tuple("F" * n + "BF" * (m - n) + "B" * n for n in first)
    return Schedule(plan.schedule).name, plan.virtual_stages


def where_groups_stand(plan, node_size, flat):
    """The groups of each axis: their ranks, or how many of them on each node where all that counts is which share one.

    Ranks are numbered with the order's first axis fastest; `dp` counts shards before replicas.
    """
    axes = AXES_OF_ORDER[RankOrder(plan.rank_order)]
    sizes = [plan.dp_shard * plan.dp_replicate if axis == "dp" else getattr(plan, axis) for axis in axes]
    ranks = np.arange(np.prod(sizes)).reshape(sizes[::-1])
    stand = []
    for axis in ("tp", "cp", "dp", "pp"):
        groups = np.moveaxis(ranks, len(axes) - 1 - axes.index(axis), -1).reshape(-1, sizes[axes.index(axis)])
        places = sorted(
            tuple(sorted(Counter(group // node_size).values()))
            for group in groups.tolist()
            for group in [np.array(group)]
        )
        stand.append(tuple(places) if flat else tuple(map(tuple, sorted(groups.tolist()))))
    return tuple(stand)


def what_executes(plan, node_size, flat):
    """Everything that tells two plans apart when they run; equal for plans that are one plan under two names."""
    groups_of_experts = plan.dp_shard * plan.dp_replicate * plan.cp * plan.tp // (plan.ep * plan.expert_tp)
    shared = (
        (plan.dp_shard, plan.dp_replicate) if plan.sharding != Sharding.NONE else (plan.dp_shard * plan.dp_replicate,)
    )
    return (
        plan.tp, plan.pp, plan.cp, plan.ep, plan.expert_tp, shared, groups_of_experts, plan.sharding, plan.context_kind,
        plan.sequence_parallel, plan.micro_batch_size, order_of_passes(plan), where_groups_stand(plan, node_size, flat),
    )  # fmt: skip


def evenly_dealt(plans, layers):
    """Plans without those whose last rank holds fewer layers for the head's sake."""
    first, last = end_layers(layers, plans.pp)
    return plans[np.asarray((plans.first_stage_layers == first) & (plans.last_stage_layers == last))]


def plain(plans):
    """Rows as scalars of Python numbers, which are quicker to compare."""
    columns = {name: np.asarray(values).tolist() for name, values in plans.columns().as_dict().items()}
    return [Plan(**dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True)]


SMALL_WORLDS = [
    pytest.param(1, 4, Wiring.SWITCH, 1, 4, id="one node of 4"),
    pytest.param(2, 2, Wiring.SWITCH, 1, 4, id="2 nodes of 2 on a switch"),
    pytest.param(2, 2, Wiring.PCIE, 1, 4, id="2 nodes of 2 on PCIe"),
    pytest.param(2, 3, Wiring.PCIE, 1, 6, id="2 nodes of 3"),
    pytest.param(2, 2, Wiring.SWITCH, 4, 4, id="4 experts on 2 nodes of 2"),
]


@pytest.mark.parametrize(("count", "gpus", "wiring", "experts", "batch"), SMALL_WORLDS)
def test_every_plan_that_executes_differently_is_found_once(
    count, gpus, wiring, experts, batch, dense, mixture, nodes, problem, stack
):
    model = dense(6, 192, 12, 6, 384) if experts == 1 else mixture(4, 64, 4, 4, experts, 64)
    cluster, job = nodes(count, gpus=gpus, wiring=wiring), Workload(batch, 96)
    every_cp = {"cp": tuple(range(1, 7)), "context_kind": tuple(ContextKind), "recompute": (Recompute.NONE,)}
    found = enumerate_plans(model, cluster, job, stack=stack, bounds=UNBOUNDED, fix=every_cp)
    flat = wiring is Wiring.SWITCH
    executed = [what_executes(plan, gpus, flat) for plan in plain(evenly_dealt(found.plans, model.num_hidden_layers))]
    assert len(set(executed)) == len(executed)

    brute = every_plan(cluster.world_size, model.num_hidden_layers, batch, experts)
    brute = brute[legal(brute, problem(model, cluster, job, stack))]
    assert len(brute) > len(found)
    assert {what_executes(plan, gpus, flat) for plan in plain(brute)} == set(executed)


def test_layers_are_dealt_in_a_second_way_where_the_head_counts(models, nodes, stack, rows_of):
    """Stages of one chunk come with fewer layers beside the head too, each beside its plan of even stages."""
    model = models.llama_8b
    found = enumerate_plans(model, nodes(1), Workload(64, 4096), stack=stack, fix={"pp": (4,)})
    even = evenly_dealt(found.plans, model.num_hidden_layers)
    last = np.asarray(found.plans.last_stage_layers)
    lighter = found.plans[last == 6]
    assert len(even) + len(lighter) == len(found)
    assert set(np.unique(lighter.virtual_stages)) == {1}
    alone = [
        replace(plan, first_stage_layers=0, last_stage_layers=0) for plan in (lighter, even[even.virtual_stages == 1])
    ]
    assert set(rows_of(alone[0])) == set(rows_of(alone[1]))


def test_a_stack_that_deals_evenly_has_no_second_way(models, nodes, stack):
    even = replace(stack, stage_splits=("even",))
    found = enumerate_plans(models.llama_8b, nodes(1), Workload(64, 4096), stack=even, fix={"pp": (4,)})
    assert set(np.unique(found.plans.last_stage_layers)) == {0}


QUESTIONS = st.fixed_dictionaries(
    {
        "layers": st.integers(4, 13),
        "kv_heads": st.sampled_from([1, 2, 3, 4]),
        "group": st.sampled_from([1, 2, 7]),
        "nodes": st.integers(1, 4),
        "gpus": st.sampled_from([1, 2, 3, 4, 6, 8]),
        "batch": st.sampled_from([24, 48, 96, 144, 192]),
        "experts": st.sampled_from([0, 2, 6]),
        "nodes_per_leaf": st.sampled_from([0, 2]),
    }
)


@settings(max_examples=25)
@given(QUESTIONS)
def test_candidates_are_legal_canonical_and_distinct(dense, mixture, nodes, problem, stack, rows_of, drawn):
    heads = drawn["kv_heads"] * drawn["group"]
    experts = drawn["experts"]
    model = (
        mixture(drawn["layers"], 16 * heads, heads, drawn["kv_heads"], experts, 96)
        if experts
        else dense(drawn["layers"], 16 * heads, heads, drawn["kv_heads"], 48 * heads)
    )
    fabric = replace(nodes(1).node.fabric, nodes_per_leaf=drawn["nodes_per_leaf"], oversubscription=2.0)
    cluster, job = nodes(drawn["nodes"], gpus=drawn["gpus"], fabric=fabric), Workload(drawn["batch"], 4096)
    found = enumerate_plans(model, cluster, job, stack=stack)
    setting = problem(model, cluster, job, stack)
    plans = found.rows(slice(None))
    assert legal(plans, setting).all()
    assert is_canonical(plans, cluster, setting).all()
    rows = rows_of(found.plans)
    assert len(set(rows)) == len(rows)


def test_one_gpu_has_one_mesh(models, nodes, stack):
    found = enumerate_plans(models.llama_8b, nodes(1, gpus=1), Workload(8, 4096), stack=stack)
    assert len(found) == len(divisors(8)) * len(Recompute)
    assert set(np.unique(found.plans.world_size)) == {1}


def test_a_node_on_a_switch_has_one_rank_order_and_a_node_on_pcie_several(models, nodes, stack):
    job = Workload(128, 4096)
    switched = enumerate_plans(models.llama_8b, nodes(1), job, stack=stack)
    assert set(switched.plans.rank_order) == {RankOrder.TP_CP_DP_PP}
    pcie = enumerate_plans(models.llama_8b, nodes(1, wiring=Wiring.PCIE), job, stack=stack)
    assert set(pcie.plans.rank_order) == set(RankOrder)


def test_an_oversubscribed_network_tells_orders_of_whole_nodes_apart(models, nodes, stack):
    job, fix = Workload(64, 4096), parse_fix("tp=8,pp=4,dp=4,schedule=1f1b,sharding=ddp,recompute=full,sp=1")
    flat = enumerate_plans(models.llama_8b, nodes(16), job, stack=stack, fix=fix)
    leaves = replace(nodes(1).node.fabric, nodes_per_leaf=4, oversubscription=4.0)
    uneven = enumerate_plans(models.llama_8b, nodes(16, fabric=leaves), job, stack=stack, fix=fix)
    in_nodes = [RankOrder.TP_CP_DP_PP, RankOrder.DP_TP_CP_PP]
    assert sorted(set(flat.plans.rank_order)) == in_nodes
    assert sorted(set(uneven.plans.rank_order)) == [0, 1, 3]


PUBLISHED = [
    ("llama_405b", 2048, 2048, 8192, "tp=8,pp=16,dp_shard=128,sharding=zero3-keep,schedule=interleaved,vpp=4,mbs=1"),
    ("gpt_175b", 64, 1536, 2048, "tp=8,pp=8,dp_replicate=8,sharding=ddp,schedule=interleaved,vpp=12,recompute=full"),
    ("llama_70b", 4, 512, 8192, "tp=4,pp=4,cp=2,dp=1,schedule=interleaved,vpp=5,mbs=1,sp=1,recompute=none"),
    ("llama_8b", 16, 256, 8192, "sharding=fsdp,dp_shard=128,mbs=2,recompute=selective"),
    ("llama_70b", 32, 512, 8192, "sharding=fsdp,dp_shard=32,tp=8,mbs=16,recompute=full"),
    ("mixtral", 8, 256, 4096, "ep=8,tp=2,pp=2,dp=16,sharding=zero1,schedule=1f1b,mbs=1"),
]  # fmt: skip


@pytest.mark.parametrize(("model", "count", "batch", "seq_len", "fix"), PUBLISHED)
def test_what_experts_published_is_in_the_space_that_is_searched(
    model, count, batch, seq_len, fix, models, nodes, stack, rows_of
):
    question = (getattr(models, model), nodes(count), Workload(batch, seq_len))
    asked = set(rows_of(enumerate_plans(*question, stack=stack, fix=parse_fix(fix)).plans))
    searched = set(rows_of(enumerate_plans(*question, stack=stack).plans))
    assert asked
    assert asked & searched


def test_the_unfixed_search_holds_all_that_parts_of_it_hold(models, nodes, stack, rows_of):
    question = (models.llama_8b, nodes(4), Workload(128, 4096))
    whole = rows_of(enumerate_plans(*question, stack=stack).plans)
    parts = [
        rows_of(enumerate_plans(*question, stack=stack, fix=parse_fix(f"sharding={name}")).plans)
        for name in ("ddp", "zero1", "zero2", "zero3", "zero3_keep")
    ]
    assert sorted(row for part in parts for row in part) == sorted(whole)


def test_layers_of_all_ranks_add_up(models, nodes, stack):
    plans = enumerate_plans(models.llama_405b, nodes(64), Workload(512, 8192), stack=stack).plans
    columns = (plans.pp, plans.virtual_stages, plans.first_stage_layers, plans.last_stage_layers)
    for pp, chunks, first, last in {tuple(row) for row in np.stack(columns).T.tolist()}:
        per_rank = layers_per_rank(126, pp, first, last)
        assert sum(per_rank) == 126
        assert max(per_rank) - min(per_rank) <= 1
        assert min(per_rank) >= chunks


def test_the_same_question_gives_the_same_rows_in_the_same_order(models, nodes, stack, rows_of):
    runs = [enumerate_plans(models.mixtral, nodes(2), Workload(96, 4096), stack=stack) for _ in range(2)]
    assert rows_of(runs[0].plans) == rows_of(runs[1].plans)
    assert runs[0].rejected == runs[1].rejected


def test_chunks_are_the_plans_in_order_and_their_products_do_not_overflow(models, nodes, stack):
    found = enumerate_plans(models.llama_8b, nodes(2), Workload(256, 4096), stack=stack)
    chunks = list(found.chunks(1000))
    assert [len(chunk) for chunk in chunks[:-1]] == [1000] * (len(chunks) - 1)
    assert np.concatenate([chunk.tp for chunk in chunks]).tolist() == found.plans.tp.tolist()
    assert chunks[0].micro_batch_size.dtype == np.int64
    assert found.plans.sharding.dtype == np.int8


def test_no_global_batch_for_any_data_parallel_degree_is_explained(dense, nodes, stack):
    model = dense(2, 64, 1, 1, 64)
    with pytest.raises(NoFeasiblePlan, match="DP does not divide the global batch of 7 sequences") as caught:
        enumerate_plans(model, nodes(5), Workload(7, 64), stack=stack)
    assert sum(caught.value.rejected.values()) > 0


def test_fixed_values_that_exclude_each_other_are_a_mistake_of_the_user(models, nodes, stack):
    question = (models.llama_8b, nodes(1), Workload(128, 4096))
    for fix, words in {
        "tp=8,pp=4": "TP 8 x PP 4 x CP 1 does not divide 8 GPUs",
        "tp=4,dp=8": "no legal plan has this dp with the rest; possible: 1, 2",
        "pp=1,schedule=1f1b": "the schedule does not go with this PP",
        "sharding=zero2,pp=2": "ZeRO-2 cannot keep gradients",
        "sharding=hsdp,dp_replicate=1": "no legal plan has this dp_replicate with the rest; possible: 2, 4",
    }.items():
        with pytest.raises(SpecError, match=words) as caught:
            enumerate_plans(*question, stack=stack, fix=parse_fix(fix))
        assert caught.value.exit_code == 2


def test_a_fixed_degree_beyond_the_bounds_is_searched(models, nodes, stack):
    question = (models.llama_8b, nodes(4), Workload(128, 4096))
    assert enumerate_plans(*question, stack=stack).plans.tp.max() == 16
    assert set(enumerate_plans(*question, stack=stack, fix={"tp": (3, 32)}).plans.tp) == {32}


def test_sharding_groups_fill_nodes_or_nodes_them_unless_they_leave_no_replicas(models, nodes, stack):
    question = (models.llama_8b, nodes(3), Workload(96, 4096))
    plans = enumerate_plans(*question, stack=stack, fix=parse_fix("tp=1,pp=1,cp=1,sharding=zero3")).plans
    assert set(plans.dp_shard) == {2, 4, 8, 24}
    assert set(enumerate_plans(*question, stack=stack, fix={"dp_shard": 6}).plans.dp_shard) == {6}


def test_offload_asynchronous_tp_and_eager_execution_are_searched_only_on_request(models, nodes, stack):
    question = (models.llama_8b, nodes(1), Workload(64, 4096))
    usual = enumerate_plans(*question, stack=stack).plans
    assert (usual.offload.max(), usual.async_tp.max(), usual.compiled.min()) == (0, 0, 1)
    asked = enumerate_plans(*question, stack=stack, fix=parse_fix("offload=optimizer,async_tp=1|0,compile=off")).plans
    assert set(asked.offload) == {1}
    assert set(asked.async_tp) == {0, 1}
    assert set(asked.compiled) == {0}


def test_context_parallelism_is_not_searched_where_smaller_micro_batches_do_the_same(models, nodes, stack):
    question = (models.llama_8b, nodes(2), Workload(64, 8192))
    plans = enumerate_plans(*question, stack=stack).plans
    assert set(plans.micro_batch_size[plans.cp > 1]) == {1}
    assert set(enumerate_plans(*question, stack=stack, fix={"cp": 4}).plans.micro_batch_size) >= {1, 2, 4}


def test_gathering_keys_is_searched_where_there_is_no_ring_or_on_request(models, nodes, stack):
    question = (models.llama_8b, nodes(2), Workload(64, 8192))
    without_ring = replace(stack, context_kinds=("none", "ulysses", "all_gather"))
    assert set(enumerate_plans(*question, stack=stack).plans.context_kind) == {0, 1, 2}
    assert set(enumerate_plans(*question, stack=without_ring).plans.context_kind) == {0, 2, 3}
    asked = enumerate_plans(*question, stack=stack, fix=parse_fix("cp_kind=ring|allgather"))
    assert set(asked.plans.context_kind) == {ContextKind.RING, ContextKind.ALL_GATHER}


def test_a_stack_bounds_the_space(models, nodes):
    stack = Stack("deepspeed", shardings=("none", "zero1", "zero2", "zero3"), schedules=("none", "one_f_one_b"),
                  context_kinds=("none", "ulysses"), sequence_parallel=False)  # fmt: skip
    plans = enumerate_plans(models.llama_8b, nodes(2), Workload(64, 8192), stack=stack).plans
    assert set(plans.schedule) == {Schedule.NONE, Schedule.ONE_F_ONE_B}
    assert Sharding.ZERO3_KEEP not in plans.sharding
    assert ContextKind.RING not in plans.context_kind
    assert not plans.sequence_parallel.any()
