"""Clusters of unequal nodes."""

from dataclasses import replace

from planner.catalogue.hardware import cluster


def test_the_slowest_accelerator_sets_the_pace_whatever_the_order_of_pools():
    fast, slow = cluster("1xdgx-h100"), cluster("1xdgx-a100")
    for pools in ((*fast.pools, *slow.pools), (*slow.pools, *fast.pools)):
        mixed = replace(fast, pools=pools)
        assert mixed.accelerator.name == slow.accelerator.name
        assert mixed.world_size == 16
