"""Bytes sent per step against counters of a network interface, and by hand."""

from dataclasses import replace

import numpy as np
import pytest

from planner.catalogue.hardware import cluster
from planner.catalogue.stacks import stack
from planner.estimate.records import Role
from planner.estimate.volume import LIBRARIES, Volume, communication_volume
from planner.spec.model import Attention, Experts, Layer, Mlp, Model
from planner.spec.plan import ContextKind, GradientSync, Plan, RankOrder, Recompute, Schedule, Sharding
from planner.spec.stack import Stack
from planner.spec.workload import Workload
from planner.topology.group_links import group_links

LAYER = Layer(Attention(8, 4, 24), Mlp(512), other_parameters=2 * 192)
GPT = Model("gpt", 192, 256, (LAYER,) * 4, other_parameters=192)
"""1,722,048 parameters, of which 2 x 256 x 192 are embedding and head."""
TOKENS = 8 * 64
BOUNDARY = TOKENS * 192 * 4
TORCH = stack("pytorch")
SHAPED, UNSHAPED = 1.0456, 1.003
"""Bytes on the wire over payload: packets of 1,500 bytes on a shaped link, segments of 64 KB on an unshaped one."""
PIPELINE = Plan(pp=2, micro_batch_size=2, num_microbatches=4, schedule=Schedule.ONE_F_ONE_B)
INTERLEAVED = replace(PIPELINE, schedule=Schedule.INTERLEAVED, virtual_stages=2)
FSDP = Plan(dp_shard=2, micro_batch_size=4, sharding=Sharding.ZERO3)
ACCUMULATED = replace(FSDP, micro_batch_size=1, num_microbatches=4)
TENSOR = Plan(tp=2, micro_batch_size=8)
SEQUENCE = replace(TENSOR, sequence_parallel=1)
GATHERED = Plan(cp=2, micro_batch_size=8, context_kind=ContextKind.ALL_GATHER)
WHOLE_LOGITS = TOKENS * 256 * 4 / 2 - 3 * TOKENS * 4
"""What a head sends more that gathers its logits and has no vocabulary-parallel loss."""

# Transmitted bytes of a veth per step: gloo, torch 2.13, two hosts, 8 sequences of 64 tokens in all.
PROBES = [
    ("DDP", Plan(dp_replicate=2, micro_batch_size=4), "fp32", 1, 0, 7_212_702),
    ("FSDP", FSDP, "fp32", 1, 0, 14_289_042),
    ("FSDP kept", replace(FSDP, sharding=Sharding.ZERO3_KEEP), "fp32", 1, 0, 10_884_960),
    ("FSDP bf16", FSDP, "bf16", 1, 0, 10_759_410),
    ("FSDP accumulated", replace(ACCUMULATED, gradient_sync=GradientSync.ONCE), "fp32", 1, 0, 35_474_652),
    ("TP, SP", SEQUENCE, "fp32", 1, WHOLE_LOGITS, 11_448_490),
    ("PP", PIPELINE, "fp32", 1, 0, 409_962),
    ("PP interleaved", INTERLEAVED, "fp32", 1, 0, 1_223_550),
    ("HSDP over TP", Plan(tp=2, dp_replicate=2, micro_batch_size=4, sequence_parallel=1), "fp32", 2, 0, 7_221_444),
]
# The same of the project's trainer on an unshaped link; the groups that cross it, by how many ranks of a host.
TRAINED = [
    ("FSDP reduced with every micro-batch", ACCUMULATED, "fp32", {"dp_shard": 1}, 54_433_982),
    ("FSDP bf16", FSDP, "bf16", {"dp_shard": 1}, 10_261_126),
    ("TP, SP", SEQUENCE, "fp32", {"tp": 1}, 10_700_936),
    ("TP, SP, full", replace(SEQUENCE, recompute=Recompute.FULL), "fp32", {"tp": 1}, 13_860_402),
    ("TP, SP, selective", replace(SEQUENCE, recompute=Recompute.SELECTIVE), "fp32", {"tp": 1}, 12_280_837),
    ("TP", TENSOR, "fp32", {"tp": 1}, 7_124_773),
    ("TP, full", replace(TENSOR, recompute=Recompute.FULL), "fp32", {"tp": 1}, 8_704_393),
    ("TP, selective", replace(TENSOR, recompute=Recompute.SELECTIVE), "fp32", {"tp": 1}, 8_704_921),
    ("GPipe bf16", replace(PIPELINE, schedule=Schedule.GPIPE), "bf16", {"pp": 1}, 199_409),
    ("PP interleaved", INTERLEAVED, "fp32", {"pp": 1}, 1_186_986),
    ("CP gathered", GATHERED, "fp32", {"cp": 1, "dp_shard": 1}, 9_281_955),
    ("CP gathered, full", replace(GATHERED, recompute=Recompute.FULL), "fp32", {"cp": 1, "dp_shard": 1}, 10_082_827),
    ("Ulysses, FSDP bf16", Plan(cp=2, micro_batch_size=8, context_kind=ContextKind.ULYSSES, sharding=Sharding.ZERO3),
     "bf16", {"cp": 1, "dp_shard": 1}, 11_453_720),
    ("HSDP", Plan(dp_shard=2, dp_replicate=2, micro_batch_size=2, sharding=Sharding.ZERO3), "fp32",
     {"dp_replicate": 2}, 6_912_270),
    ("TP, SP, FSDP", replace(FSDP, tp=2, sequence_parallel=1), "fp32", {"dp_shard": 2}, 13_637_422),
    ("PP, FSDP kept", replace(PIPELINE, dp_shard=2, micro_batch_size=1, sharding=Sharding.ZERO3_KEEP), "fp32",
     {"pp": 2}, 398_096),
    ("PP, DDP outermost", replace(PIPELINE, dp_replicate=2, micro_batch_size=1, rank_order=RankOrder.TP_CP_PP_DP),
     "fp32", {"dp_replicate": 2}, 6_905_245),
    ("FSDP over 4, two on a host", Plan(dp_shard=4, micro_batch_size=2, sharding=Sharding.ZERO3), "fp32",
     {"dp_shard": 1}, 20_439_997),
    ("DDP over 4, two on a host", Plan(dp_replicate=4, micro_batch_size=2), "fp32", {"dp_replicate": 1}, 10_350_611),
    ("TP, SP across hosts, FSDP inside", replace(FSDP, tp=2, sequence_parallel=1, rank_order=RankOrder.DP_TP_CP_PP),
     "fp32", {"tp": 2}, 10_761_132),
    ("PP interleaved, TP, SP, DDP outermost",
     replace(INTERLEAVED, tp=2, dp_replicate=2, sequence_parallel=1, micro_batch_size=1,
             rank_order=RankOrder.TP_CP_PP_DP), "fp32", {"dp_replicate": 4}, 6_924_340),
]  # fmt: skip


def job(precision="fp32", **options):
    return Workload(8, 64, precision=precision, **options)


def volume(plan, *, model=GPT, workload=None, conventions=TORCH, **options) -> Volume:
    return communication_volume(model, plan, workload or job(), conventions, **options)


def test_the_probes_model_has_the_parameters_that_were_counted():
    assert GPT.parameters == 1_722_048


@pytest.mark.parametrize(("name", "plan", "precision", "ranks", "more", "sent"), PROBES, ids=[row[0] for row in PROBES])
def test_volume_is_what_a_probe_counted(name, plan, precision, ranks, more, sent):
    found = volume(plan, workload=job(precision), library="gloo", role=Role.FIRST)
    crossing = found.dp_replicate.total * ranks if ranks > 1 else found.total
    assert crossing + more == pytest.approx(sent / SHAPED, rel=0.02)


@pytest.mark.parametrize(("name", "plan", "precision", "crossing", "sent"), TRAINED, ids=[row[0] for row in TRAINED])
def test_volume_is_what_the_trainer_sends(name, plan, precision, crossing, sent):
    found = volume(plan, workload=job(precision), library="gloo", role=Role.FIRST)
    total = sum(getattr(found, group).total * ranks for group, ranks in crossing.items())
    assert total == pytest.approx(sent / UNSHAPED, rel=0.013)


def test_a_ring_scatters_half_of_what_gloo_does():
    ring, gloo = (volume(FSDP, library=library).dp_shard for library in LIBRARIES)
    assert gloo.reduce_scatter == 2 * ring.reduce_scatter == 4 * GPT.parameters
    assert gloo.all_gather == ring.all_gather == 4 * (GPT.parameters + 4 * LAYER.parameters(192)) / 2


def test_alone_a_rank_sends_nothing():
    for plan in (Plan(micro_batch_size=8), Plan(num_microbatches=8, recompute=Recompute.FULL)):
        assert volume(plan).total == 0


def test_a_column_of_plans_has_the_volumes_of_its_rows():
    plans = [FSDP, SEQUENCE, PIPELINE, INTERLEAVED, GATHERED, replace(SEQUENCE, recompute=Recompute.FULL)]
    names = Plan().as_dict()
    together = volume(Plan(**{name: np.array([getattr(plan, name) for plan in plans]) for name in names}))
    assert together.total.tolist() == [volume(plan).total for plan in plans]
    assert together[1].tp.all_gather == volume(SEQUENCE).tp.all_gather


@pytest.mark.parametrize(("keeps", "gathers"), [(1.0, 4), (0.0, 6)])
def test_sequence_parallelism_gathers_inputs_again_where_they_are_not_kept(keeps, gathers):
    found = volume(SEQUENCE, conventions=Stack("s", keeps_gathered_inputs=keeps)).tp
    embedding_and_head = 2 * BOUNDARY / 2
    assert found.all_gather == 4 * gathers * BOUNDARY / 2 + embedding_and_head
    assert found.reduce_scatter == 4 * 4 * BOUNDARY / 2 + embedding_and_head
    assert found.all_reduce == 3 * TOKENS * 4


def test_recomputation_that_stops_early_leaves_the_last_reduction_out():
    plan = replace(TENSOR, recompute=Recompute.FULL)
    early, late = (volume(plan, conventions=Stack("s", early_stop=each)).tp.all_reduce for each in (1.0, 0.0))
    assert late - early == 4 * BOUNDARY


def test_middle_stages_send_activations_on_and_gradients_back_from_every_chunk():
    model = replace(GPT, layers=(LAYER,) * 8)
    plan = Plan(pp=4, virtual_stages=2, micro_batch_size=2, num_microbatches=4, schedule=Schedule.INTERLEAVED)
    one = BOUNDARY / 4
    sent = [volume(plan, model=model, role=role).pp.send for role in Role]
    assert sent == [4 * 3 * one, 4 * 4 * one, 4 * 3 * one]
    assert volume(plan, model=model).role == Role.MIDDLE


@pytest.mark.parametrize(("sequence", "parts", "gathered"), [(0, 2, 1), (1, 2, 0)])
def test_parts_sent_between_stages_are_gathered_where_they_arrive(sequence, parts, gathered):
    plan = replace(PIPELINE, tp=2, sequence_parallel=sequence)
    whole, apart = (volume(plan, conventions=Stack("s", scatters_sends=each), role=Role.LAST) for each in (0.0, 1.0))
    one = BOUNDARY / 4
    assert apart.pp.send == 4 * one / parts
    assert apart.tp.all_gather - whole.tp.all_gather == gathered * 4 * one / 2


def test_the_stages_at_the_ends_swap_the_gradients_of_a_tied_embedding():
    tied = replace(GPT, tie_word_embeddings=True)
    plan = replace(PIPELINE, dp_shard=2, micro_batch_size=1, sharding=Sharding.ZERO3_KEEP)
    apart, shared = (volume(plan, model=model).pp.send for model in (GPT, tied))
    assert shared - apart == 256 * 192 * 4 / 2


@pytest.mark.parametrize(
    ("sharding", "gathers", "scatters"),
    [
        (Sharding.NONE, 0, 0),
        (Sharding.ZERO1, 1, 1),
        (Sharding.ZERO2, 1, 4),
        (Sharding.ZERO3, 8, 4),
        (Sharding.ZERO3_KEEP, 4, 4),
    ],
)
def test_weights_are_gathered_and_gradients_scattered_as_often_as_the_sharding_says(sharding, gathers, scatters):
    sharded = sharding != Sharding.NONE
    plan = Plan(
        dp_shard=2 if sharded else 1, dp_replicate=1 if sharded else 2, num_microbatches=4, sharding=sharding
    )  # fmt: skip
    found, half = volume(plan, conventions=stack("generic")), 4 * GPT.parameters / 2
    kept = (sharding == Sharding.ZERO3) * 4 * (GPT.parameters - 4 * LAYER.parameters(192)) * 4 / 2
    assert found.dp_shard.all_gather == pytest.approx(gathers * half - kept)
    assert found.dp_shard.reduce_scatter == scatters * half
    assert found.dp_replicate.all_reduce == (0 if sharded else 2 * half)


def test_an_all_reduce_over_context_ranks_and_replicas_is_that_of_one_group():
    plan = Plan(cp=2, dp_replicate=4, context_kind=ContextKind.RING)
    for library in LIBRARIES:
        found = volume(plan, workload=job(), library=library)
        gradients = found.dp_shard.total + found.dp_replicate.total
        assert gradients == pytest.approx(2 * 7 / 8 * 4 * GPT.parameters)
        assert found.dp_shard.reduce_scatter == found.dp_shard.all_gather == 0


def test_tokens_go_to_their_experts_and_back_in_both_directions():
    expert = Layer(Attention(8, 4, 24), None, Experts(8, 2, Mlp(64)))
    model = replace(GPT, layers=(expert,) * 4)
    plan = Plan(dp_shard=4, ep=4, micro_batch_size=2, sharding=Sharding.ZERO3)
    found = volume(plan, model=model)
    assert found.ep.all_to_all == 4 * 4 * 3 / 4 * 2 * (2 * 64 * 192 * 4)
    assert found.expert_shard.total == 0
    full = volume(replace(plan, recompute=Recompute.FULL), model=model)
    assert full.ep.all_to_all == 1.5 * found.ep.all_to_all


def test_adapters_alone_are_reduced():
    plan = Plan(dp_replicate=2, micro_batch_size=4)
    lora = volume(plan, workload=job(method="lora", lora_rank=2)).dp_replicate.all_reduce
    assert 0 < lora < 0.05 * volume(plan).dp_replicate.all_reduce


def test_groups_are_as_large_as_their_links():
    plans = [
        Plan(tp=2, pp=2, cp=2, dp_shard=2, context_kind=ContextKind.RING, schedule=Schedule.GPIPE),
        Plan(tp=4, dp_shard=2, dp_replicate=2, ep=2, expert_tp=4),
        Plan(dp_shard=16, ep=8),
    ]
    experts = Layer(Attention(8, 8, 24), None, Experts(8, 2, Mlp(64)), other_parameters=384)
    model = replace(GPT, layers=(experts,) * 4)
    for plan in plans:
        links = group_links(plan, cluster("2xdgx-h100"))
        found = volume(replace(plan, sharding=Sharding.ZERO3), model=model)
        for name in Volume.GROUPS:
            assert getattr(found, name).total == 0 or getattr(links, name).size > 1, name
        assert links.dp_shard.size == plan.shard_group
        assert links.expert_shard.size == plan.expert_shard_group
        assert links.dp_replicate.size == links.expert_replicate.size == plan.dp_replicate
