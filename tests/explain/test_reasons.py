from dataclasses import fields, replace

import numpy as np
import pytest

from planner.catalogue.hardware import cluster, network
from planner.estimate.records import MemoryUse, StepTime
from planner.explain.reasons import limits, why_more_memory, why_slower
from planner.spec.cluster import Wan
from planner.topology.links import GroupLinks, Links

CLUSTER = cluster("2xdgx-h100")
ALONE = GroupLinks(1, 1, np.inf, np.inf, 0.0, 0.0)
ACROSS = GroupLinks(16, 8, 450e9, 50e9, 2e-6, 4e-6)
INSIDE = GroupLinks(8, 8, 450e9, np.inf, 2e-6, 4e-6)
LINKS = Links(*([ALONE] * 9))


def step(**seconds):
    return StepTime(**dict.fromkeys([field.name for field in fields(StepTime)], 0.0) | seconds)


def held(**sizes):
    return MemoryUse(**dict.fromkeys([*MemoryUse.ITEMS, "host", "role", "moment"], 0.0) | sizes)


def test_the_term_that_grew_is_named_with_its_seconds():
    assert why_slower(step(matmul=1.0), step(matmul=1.0, bubble=0.25)) == "250 ms more pipeline bubble"


def test_what_the_other_plan_saves_is_named_when_it_counts():
    best, other = step(matmul=1.0, dp_exposed=0.4), step(matmul=1.0, recompute=1.0)
    assert (
        why_slower(best, other)
        == "1.00 s more recomputation in backward, though 400 ms less data-parallel communication"
    )


def test_small_differences_are_not_named():
    best, other = step(matmul=1.0, host=0.01), step(matmul=2.0, attention=0.01)
    assert why_slower(best, other) == "1.00 s more matrix products"


def test_memory_is_compared_by_item():
    best, other = held(weights=2.0**30), held(weights=3 * 2.0**30)
    assert why_more_memory(best, other) == "2.0 GiB more weights"


def test_limit_names_the_busiest_resource_and_its_largest_terms():
    text = limits(step(matmul=7.0, attention=2.0, optimizer=0.1), LINKS, CLUSTER)
    assert (
        text == "compute takes 99% of the step (matrix products 77%, attention 22%); communication is hidden or absent"
    )


@pytest.mark.parametrize(
    ("group", "link"), [(ACROSS, "ib-ndr400 (50.0 GB/s per GPU)"), (INSIDE, "nvlink4 (450.0 GB/s per GPU)")]
)
def test_limit_names_the_link_that_paces_the_largest_communication(group, link):
    text = limits(step(matmul=6.0, dp_exposed=4.0), replace(LINKS, dp_shard=group), CLUSTER)
    assert text.endswith(f"data-parallel communication 40% over {link}")


def test_limit_of_a_waiting_pipeline_is_the_bubble():
    text = limits(step(matmul=3.0, bubble=6.0, tp_exposed=1.0), replace(LINKS, tp=INSIDE), CLUSTER)
    assert text.startswith("waiting takes 60% of the step (pipeline bubble 60%)")
    assert "matrix products 30%" in text
    assert "tensor-parallel communication 10% over nvlink4" in text


def test_several_communications_are_summed_and_the_largest_is_named():
    text = limits(step(matmul=6.0, dp_exposed=3.0, tp_exposed=1.0), replace(LINKS, dp_shard=ACROSS), CLUSTER)
    assert text.endswith("communication 40%, mostly data-parallel communication 30% over ib-ndr400 (50.0 GB/s per GPU)")


def test_limit_names_the_link_where_communication_itself_is_the_limit():
    text = limits(step(matmul=2.0, dp_exposed=8.0), replace(LINKS, dp_shard=ACROSS), CLUSTER)
    assert text.startswith("communication takes 80% of the step (data-parallel communication 80% over ib-ndr400 (50.0")


def test_limit_leaves_out_second_terms_that_hardly_count():
    text = limits(step(matmul=9.99, attention=0.01), LINKS, CLUSTER)
    assert text.startswith("compute takes 100% of the step (matrix products 100%);")


def test_limit_names_the_wide_area_link_between_sites():
    sites = replace(CLUSTER, wan=Wan(1.25e9, 0.02))
    far = replace(ACROSS, remote_bandwidth=1e8, remote_latency=0.02)
    text = limits(step(matmul=6.0, dp_exposed=4.0), replace(LINKS, dp_shard=far), sites)
    assert text.endswith("over the wide-area link (0.1 GB/s per GPU)")


def test_limit_names_the_slower_of_two_networks():
    slow = CLUSTER.with_fabric(network("ib-hdr200"))
    mixed = replace(CLUSTER, pools=(*CLUSTER.pools, *slow.pools))
    text = limits(step(matmul=6.0, dp_exposed=4.0), replace(LINKS, dp_shard=ACROSS), mixed)
    assert "over ib-hdr200" in text
