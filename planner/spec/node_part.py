"""A host of which only some accelerators are used."""

from __future__ import annotations

import math
from dataclasses import replace

from planner.spec.cluster import Node, Wiring
from planner.spec.mesh import pair_bandwidth


def first_accelerators(node: Node, count: int) -> Node:
    """The node with its first `count` accelerators and what goes with them.

    NICs and host memory shrink in proportion (at least one NIC), sockets to those that the accelerators sit on, and
    a mesh to the links among them. One accelerator alone keeps its links' bandwidth, which it does not use.
    """
    if count >= node.gpus_per_node:
        return node
    share = count / node.gpus_per_node
    sockets = min(node.sockets, math.ceil(share * node.sockets))
    pairs = {pair: bandwidth for pair, bandwidth in node.link_pairs.items() if max(pair) < count}
    meshed = node.wiring is Wiring.MESH and count > 1
    nics = max(1, math.ceil(share * node.fabric.nics_per_node))
    return replace(
        node,
        gpus_per_node=count,
        link_pairs=pairs,
        link_bandwidth=max(pair_bandwidth(pairs, gpu) for gpu in range(count)) if meshed else node.link_bandwidth,
        sockets=sockets,
        host_memory=share * node.host_memory,
        host_memory_bandwidth=node.host_memory_bandwidth * sockets / node.sockets,
        fabric=replace(node.fabric, nics_per_node=nics),
    )
