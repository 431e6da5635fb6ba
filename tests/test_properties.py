"""Any legal plan of any model on any cluster gets finite, positive figures that move the right way."""

from dataclasses import dataclass, field, fields, replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.catalogue.hardware import cluster
from planner.catalogue.models import model
from planner.catalogue.profiles import profile
from planner.catalogue.stacks import stack
from planner.estimate.memory import memory_use
from planner.estimate.records import MemoryUse
from planner.estimate.step_time import step_time
from planner.search.enumerate import enumerate_plans
from planner.spec.cluster import Cluster
from planner.spec.model import Model
from planner.spec.plan import Plan
from planner.spec.stack import Stack
from planner.spec.workload import Workload
from planner.topology.group_links import group_links

MODELS = (
    "gpt2",
    "llama-3.1-8b",
    "mixtral-8x7b",
    "deepseek-v2-lite",
    "gpt-oss-20b",
    "bert-large",
    "gemma-2-9b",
    "t5-large",
)
CLUSTERS = (
    "1xh100-sxm",
    "2xrtx-4090",
    "3xdgx-a100",
    "8xmi300x",
    "2xdgx-1-v100",
    "18xgb200-nvl72",
    "4xaws-p4d.24xlarge",
)
STACKS = ("pytorch", "megatron-core", "hf-deepspeed")
MOST_ROWS = 400


@dataclass(frozen=True)
class Question:
    """A model, a cluster, a workload and a stack with some of their legal plans."""

    model: Model
    cluster: Cluster
    workload: Workload
    stack: Stack
    plans: Plan = field(repr=False)


@st.composite
def questions(draw):
    machines, asked = cluster(draw(st.sampled_from(CLUSTERS))), model(draw(st.sampled_from(MODELS)))
    precision = draw(st.sampled_from(["bf16", "fp16"] if "bf16" in machines.accelerator.peak else ["fp16"]))
    workload = Workload(
        global_batch_size=machines.world_size * draw(st.sampled_from([1, 2, 8])),
        seq_len=draw(st.sampled_from([128, 512, 4096])),
        precision=precision,
        optimizer=draw(st.sampled_from(["adamw", "adamw-8bit", "sgd"])),
        method=draw(st.sampled_from(["full", "full", "lora", "qlora"])),
        attention=draw(st.sampled_from(["flash", "math"])),
    )
    software = stack(draw(st.sampled_from(STACKS)))
    candidates = enumerate_plans(asked, machines, workload, stack=software)
    rows = np.unique(np.linspace(0, len(candidates) - 1, MOST_ROWS).astype(int))
    return Question(asked, machines, workload, software, candidates.rows(rows))


def times(question):
    accelerator, fabric = question.cluster.accelerator, question.cluster.node.fabric
    return step_time(
        question.model,
        question.plans,
        question.workload,
        question.cluster,
        group_links(question.plans, question.cluster),
        profile=profile(accelerator, question.stack.name, fabric=fabric),
        stack=question.stack,
    )


def faster(machines: Cluster, factor: float) -> Cluster:
    """The same cluster with every link faster."""
    pools = []
    for pool in machines.pools:
        node, fabric = pool.node, pool.node.fabric
        pairs = {pair: factor * bandwidth for pair, bandwidth in node.link_pairs.items()}
        fabric = replace(fabric, nic_bandwidth=factor * fabric.nic_bandwidth)
        node = replace(node, link_bandwidth=factor * node.link_bandwidth, link_pairs=pairs, fabric=fabric)
        pools.append(replace(pool, node=node))
    return replace(machines, pools=tuple(pools))


FEW = settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
MANY = settings(FEW, max_examples=300)


def assert_finite(question):
    time = times(question)
    for term in fields(time):
        seconds = np.asarray(getattr(time, term.name))
        assert np.all(np.isfinite(seconds)), term.name
        assert np.all(seconds >= 0), term.name
    assert np.all(time.total > 0)
    memory = memory_use(question.model, question.plans, question.workload, question.stack)
    for name in MemoryUse.ITEMS:
        item = np.asarray(getattr(memory, name))
        assert np.all(np.isfinite(item)), name
        assert np.all(item >= 0), name
    assert np.all(memory.peak > 0)


def assert_never_slowed(question, factor):
    quicker = times(replace(question, cluster=faster(question.cluster, factor))).total
    assert np.all(quicker <= times(question).total * (1 + 1e-9))


@FEW
@given(questions())
def test_every_legal_plan_has_finite_times_and_memory(question):
    assert_finite(question)


@FEW
@given(questions(), st.floats(1.0, 50.0))
def test_more_bandwidth_never_slows(question, factor):
    assert_never_slowed(question, factor)


@FEW
@given(questions())
def test_more_ranks_never_grow_a_rank_s_sharded_memory(question):
    more = replace(question.plans, dp_shard=2 * question.plans.dp_shard)
    before, after = (
        memory_use(question.model, plans, question.workload, question.stack) for plans in (question.plans, more)
    )
    least, most = (use.peak - use.communication_buffers for use in (after, before))
    assert np.all(least <= most * (1 + 1e-9))


@FEW
@given(questions())
def test_twice_the_micro_batches_never_take_less_time(question):
    more = replace(question.plans, num_microbatches=2 * question.plans.num_microbatches)
    batch = replace(question.workload, global_batch_size=2 * question.workload.global_batch_size)
    assert np.all(times(replace(question, plans=more, workload=batch)).total >= times(question).total)


@pytest.mark.slow
@MANY
@given(questions(), st.floats(1.0, 50.0))
def test_hundreds_of_questions_keep_the_same_properties(question, factor):
    assert_finite(question)
    assert_never_slowed(question, factor)
