"""A cluster, declared: node types, how many of each, and the network between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum

from planner.quantities import Bytes, BytesPerSecond, Seconds
from planner.spec.accelerator import Accelerator, Source


class Wiring(IntEnum):
    """How the accelerators of a node reach each other."""

    SWITCH = 0
    """Every accelerator on a switch at full rate (NVSwitch, NVL72)."""
    MESH = 1
    """Direct links between pairs; `Node.link_pairs` says which."""
    PCIE = 2
    """PCIe switches or root ports, peer access allowed."""
    HOST = 3
    """PCIe without peer access: every byte passes through host memory."""


@dataclass(frozen=True)
class Fabric:
    """The network between nodes.

    `kind` is one of infiniband, roce, efa, slingshot, omnipath, ethernet (TCP), tcpx, none. `nic_bandwidth` is one
    NIC's, one direction; `nics_per_node` 0 means as many as the node has (`Cluster.with_fabric` fills it in).
    `latency` is that of one step of a collective between nodes. `oversubscription` divides the leaf-to-spine capacity
    (1 = non-blocking); `nodes_per_leaf` 0 means rail-optimised: NIC i of every node on leaf i.

    A third tier: `nodes_per_pod` nodes and the spines between their leaves are a pod (0 = one pod holds all), and
    `pod_oversubscription` is what comes down to those spines over what goes up to the core, so that of a node's
    bandwidth 1 / (oversubscription x pod_oversubscription) reaches other pods. Rails end at a pod's border: NIC i of
    every node of the pod is on its leaf i.
    """

    name: str
    kind: str
    nics_per_node: int
    nic_bandwidth: BytesPerSecond
    latency: Seconds
    oversubscription: float = 1.0
    nodes_per_leaf: int = 0
    nodes_per_pod: int = 0
    pod_oversubscription: float = 1.0
    sources: Mapping[str, Source] = field(default_factory=dict)

    @property
    def node_bandwidth(self) -> BytesPerSecond:
        """All NICs of a node together, one direction."""
        return self.nics_per_node * self.nic_bandwidth

    @property
    def thin_blocks(self) -> tuple[int, ...]:
        """Nodes of each kind of block that has less bandwidth to the rest than its nodes have; 0 means all nodes.

        >>> Fabric("", "roce", 8, 50e9, 5e-6, nodes_per_leaf=2, nodes_per_pod=384, pod_oversubscription=7).thin_blocks
        (384,)
        """
        tiers = (
            (self.nodes_per_leaf or self.nodes_per_pod, self.oversubscription),
            (self.nodes_per_pod, self.pod_oversubscription),
        )
        return tuple(nodes for nodes, ratio in tiers if ratio > 1)


@dataclass(frozen=True)
class Node:
    """A machine. `link_bandwidth` is one accelerator's, all its links together, one direction.

    `link_pairs` (for `Wiring.MESH`) maps a pair (i, j), i < j, to the bandwidth between them, one direction.
    `domain_nodes` is how many nodes share one link domain (18 for a GB200 NVL72 rack of 18 trays; else 1).
    `link` names the link generation: "nvlink4", "xgmi", "pcie4", ... and with the accelerator keys the measured
    efficiencies.
    """

    name: str
    accelerator: Accelerator
    gpus_per_node: int
    wiring: Wiring
    link: str
    link_bandwidth: BytesPerSecond
    link_latency: Seconds
    fabric: Fabric
    link_pairs: Mapping[tuple[int, int], BytesPerSecond] = field(default_factory=dict)
    domain_nodes: int = 1
    sockets: int = 2
    gpus_per_pcie_switch: int = 0
    """How many accelerators share one PCIe uplink; 0 = each has its own root port."""
    socket_bandwidth: BytesPerSecond = 20e9
    """Between the two CPU sockets, one direction, as seen by accelerators' traffic."""
    host_memory: Bytes = 0.0
    host_memory_bandwidth: BytesPerSecond = 0.0
    in_network_reduction: bool = False
    """Whether the node's switch reduces (NVLS)."""
    nics_on_accelerators: bool = False
    """Whether NICs are on the accelerators or on their board, so that traffic to them does not pass the host's PCIe."""
    aliases: tuple[str, ...] = ()
    sources: Mapping[str, Source] = field(default_factory=dict)
    usd_per_gpu_hour: tuple[float, float] | None = None
    price_date: str = ""
    notes: str = ""


@dataclass(frozen=True)
class Wan:
    """A link between sites: each `Pool` with another `site` is reached through it."""

    bandwidth: BytesPerSecond
    latency: Seconds
    spread: float = 0.0
    """Relative spread of the bandwidth (standard deviation / mean)."""


@dataclass(frozen=True)
class Pool:
    """Equal nodes at one site."""

    node: Node
    num_nodes: int
    site: str = ""


@dataclass(frozen=True)
class Cluster:
    """Pools of nodes. Most have one pool; several pools make a mixed cluster or several sites.

    `notes` say, for people, what reading the cluster assumed.
    """

    name: str
    pools: tuple[Pool, ...]
    wan: Wan | None = None
    notes: tuple[str, ...] = ()

    @property
    def node(self) -> Node:
        """The first pool's node type: the one that plans are laid out for."""
        return self.pools[0].node

    @property
    def accelerator(self) -> Accelerator:
        """The slowest pool's accelerator: it sets the pace of a step that all ranks take together."""
        return min((pool.node.accelerator for pool in self.pools), key=lambda part: part.half_peak)

    @property
    def num_nodes(self) -> int:
        """Nodes of all pools."""
        return sum(pool.num_nodes for pool in self.pools)

    @property
    def world_size(self) -> int:
        """Accelerators of all pools: the number of ranks."""
        return sum(pool.num_nodes * pool.node.gpus_per_node for pool in self.pools)

    def with_fabric(self, fabric: Fabric) -> Cluster:
        """The same nodes joined by another network; a fabric of 0 NICs per node gets as many as each node has."""
        pools = tuple(replace(pool, node=_with_fabric(pool.node, fabric)) for pool in self.pools)
        note = f"network {fabric.name}: {_nics_text(pools)}"
        return replace(self, pools=pools, notes=(*self.notes, note))


def _with_fabric(node: Node, fabric: Fabric) -> Node:
    return replace(node, fabric=replace(fabric, nics_per_node=fabric.nics_per_node or node.fabric.nics_per_node))


def _nics_text(pools: tuple[Pool, ...]) -> str:
    counts = {pool.node.name: pool.node.fabric.nics_per_node for pool in pools}
    return ", ".join(f"{count} {'NIC' if count == 1 else 'NICs'} per {name} node" for name, count in counts.items())
