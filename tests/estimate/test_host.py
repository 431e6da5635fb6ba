"""What the host adds: beside a device, or before the kernels where both are one processor."""

from dataclasses import replace

import numpy as np
import pytest

from planner.catalogue.hardware import cluster
from planner.catalogue.models import model
from planner.catalogue.profiles import profile
from planner.catalogue.stacks import stack
from planner.estimate.host import host_operators
from planner.estimate.step_time import step_time
from planner.spec.cluster import Pool
from planner.spec.plan import Plan, Recompute, Schedule, Sharding
from planner.spec.workload import Workload
from planner.topology.group_links import group_links

GPUS = cluster("8xh100-sxm")
SMALL = model("llama-3.2-1b")
LAYERS = SMALL.num_hidden_layers
WORKLOAD = Workload(8, 1024)
USUAL = replace(profile(GPUS.accelerator, "pytorch"), launch_time=0.0)
DDP = Plan(dp_replicate=8, compiled=0)
FSDP = replace(DDP, dp_replicate=1, dp_shard=8, sharding=Sharding.ZERO3)
PP = replace(DDP, dp_replicate=4, pp=2, num_microbatches=2, schedule=Schedule.ONE_F_ONE_B)
TP = replace(DDP, dp_replicate=1, tp=8, sequence_parallel=1, micro_batch_size=8)


def on_processors():
    """The same parts, were they processors: so slow is no GPU's host."""
    node = GPUS.node
    part = replace(node.accelerator, runs_on_host=True)
    return replace(GPUS, pools=(Pool(replace(node, accelerator=part), 1),))


def seconds(plan, where=GPUS, **figures):
    efficiencies = replace(USUAL, **figures)
    links = group_links(plan, where)
    return step_time(SMALL, plan, WORKLOAD, where, links, profile=efficiencies, stack=stack("pytorch"))


def test_a_device_hides_a_host_that_is_faster():
    assert seconds(DDP, launch_time=1e-8).host == 0


def test_on_a_processor_launches_add_to_the_work():
    where, plan = on_processors(), TP
    operators = 3 * float(host_operators(plan, stack("pytorch"), "full")) * LAYERS
    added = seconds(plan, where, launch_time=1e-6).total - seconds(plan, where).total
    assert added == pytest.approx(operators * 1e-6)
    assert seconds(plan, where, launch_time=1e-6).host == pytest.approx(operators * 1e-6)


@pytest.mark.parametrize(
    ("figure", "plan", "unlike"),
    [
        ("tp_launch_time", TP, FSDP),
        ("pp_launch_time", PP, TP),
        ("fsdp_launch_time", FSDP, TP),
        ("recompute_launch_time", replace(TP, recompute=Recompute.FULL), TP),
    ],
)
def test_what_dividing_adds_counts_where_layers_are_divided(figure, plan, unlike):
    slow = 5e-3
    slots = float(plan.num_microbatches / plan.pp)
    passes = slots if figure == "recompute_launch_time" else 3 * slots
    where = on_processors()
    assert seconds(plan, where, **{figure: slow}).host == pytest.approx(passes * slow * LAYERS)
    assert seconds(unlike, where, **{figure: slow}).host == 0


def test_compiled_layers_dispatch_no_divided_tensors_but_keep_their_hooks():
    where = on_processors()
    compiled = {"tp": replace(TP, compiled=1), "fsdp": replace(FSDP, compiled=1)}
    assert seconds(compiled["tp"], where, tp_launch_time=1e-3).host == 0
    assert seconds(compiled["fsdp"], where, fsdp_launch_time=1e-3).host > 0


def test_updates_cost_the_host_once_per_step():
    where = on_processors()
    more = replace(TP, num_microbatches=4, micro_batch_size=2)
    for plan in (TP, more):
        added = seconds(plan, where, update_launch_time=1e-4).optimizer - seconds(plan, where).optimizer
        assert added == pytest.approx(1e-4 * LAYERS)


def test_on_a_processor_sharded_weights_hide_behind_nothing():
    where = on_processors()
    free, usual = (seconds(FSDP, where, overlap_penalty=penalty).dp_exposed for penalty in (0.0, 0.5))
    assert free == usual > seconds(FSDP, GPUS, overlap_penalty=0.0).dp_exposed


def test_the_last_bucket_of_replicas_hides_behind_nothing():
    """A model whose gradients are one bucket starts to reduce when its backward is over."""
    plan, software = replace(DDP, micro_batch_size=16), stack("pytorch")
    links = group_links(plan, GPUS)
    free = replace(USUAL, overlap_penalty=0.0)

    def exposed(bucket):
        own = replace(software, gradient_bucket=bucket)
        return float(step_time(SMALL, plan, WORKLOAD, GPUS, links, profile=free, stack=own).dp_exposed)

    whole = exposed(1e12)
    shares = np.array([exposed(bytes_) for bytes_ in (0.0, 26214400.0, 1e9)]) / whole
    assert shares[0] == 0
    assert shares[1] == pytest.approx(26214400.0 / (4 * SMALL.parameters), rel=1e-6)
    assert shares[2] < 1
