"""Machines with well-known wiring, built here so that the tests stand without the catalogue."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from planner.spec.accelerator import Accelerator
from planner.spec.cluster import Cluster, Fabric, Node, Pool, Wan, Wiring

V100_LINKS = {
    (0, 1): 1, (0, 2): 1, (0, 3): 2, (0, 4): 2, (1, 2): 2, (1, 3): 1, (1, 5): 2, (2, 3): 2,
    (2, 6): 1, (3, 7): 1, (4, 5): 1, (4, 6): 1, (4, 7): 2, (5, 6): 2, (5, 7): 1, (6, 7): 2,
}  # fmt: skip
"""NVLinks between the V100s of a DGX-1 (nvidia-smi topo -m): the hybrid cube mesh."""


def full_mesh(gpus: int, bandwidth: float) -> dict[tuple[int, int], float]:
    return {(i, j): bandwidth for i in range(gpus) for j in range(i + 1, gpus)}


class Machines:
    """Builders; bandwidths in GB/s and one direction."""

    @staticmethod
    def accelerator(name: str = "h100", *, pcie: float = 63.0) -> Accelerator:
        return Accelerator(
            name, "vendor", "architecture", memory=80e9, usable_memory=79e9, memory_bandwidth=3.35e12,
            peak={"bf16": 989e12}, multiprocessors=132, pcie_bandwidth=pcie * 1e9,
        )  # fmt: skip

    @staticmethod
    def fabric(
        nics: int, each: float, *, over: float = 1.0, per_leaf: int = 0, kind: str = "infiniband", **pods: float
    ) -> Fabric:
        return Fabric("net", kind, nics, each * 1e9, 5e-6, oversubscription=over, nodes_per_leaf=per_leaf, **pods)

    def switched(self, gpus: int = 8, link: float = 450.0, *, fabric: Fabric | None = None, **extra) -> Node:
        """DGX H100 unless told otherwise: NVSwitch, one 400 Gb/s NIC per GPU."""
        return Node(
            "dgx", self.accelerator(), gpus, Wiring.SWITCH, "nvlink4", link * 1e9, 2e-6,
            fabric or self.fabric(gpus, 50.0), **extra,
        )  # fmt: skip

    def meshed(self, links: dict[tuple[int, int], float], *, fabric: Fabric | None = None, **extra) -> Node:
        gpus = max(j for _, j in links) + 1
        each = max(sum(rate for pair, rate in links.items() if i in pair) for i in range(gpus))
        return Node(
            "mesh", self.accelerator(pcie=15.75), gpus, Wiring.MESH, "nvlink2", each * 1e9, 2e-6,
            fabric or self.fabric(4, 12.5), link_pairs={pair: rate * 1e9 for pair, rate in links.items()},
            gpus_per_pcie_switch=2, **extra,
        )  # fmt: skip

    def dgx1(self) -> Node:
        return self.meshed({pair: 25.0 * count for pair, count in V100_LINKS.items()})

    def mi300x(self) -> Node:
        return self.meshed(full_mesh(8, 64.0), fabric=self.fabric(8, 50.0))

    def pcie(self, *, peers: bool = True, gpus: int = 8, fabric: Fabric | None = None, **extra) -> Node:
        """PCIe 4 x16 cards in a host of two sockets with one 25 Gb/s NIC."""
        wiring = Wiring.PCIE if peers else Wiring.HOST
        return Node(
            "box", self.accelerator("rtx-4090", pcie=31.5), gpus, wiring, "pcie4", 31.5e9, 3e-6,
            fabric or self.fabric(1, 3.125, kind="ethernet"), **{"socket_bandwidth": 20e9, **extra},
        )  # fmt: skip

    def nvl72(self) -> Node:
        """One tray: 4 GPUs and 4 NICs, 18 trays in one NVLink domain."""
        return self.switched(4, 900.0, fabric=self.fabric(4, 50.0), domain_nodes=18)

    @staticmethod
    def cluster(node: Node, nodes: int = 1) -> Cluster:
        return Cluster(f"{nodes}x{node.name}", (Pool(node, nodes),))

    @staticmethod
    def sites(node: Node, nodes: Iterable[int], *, wan: float, latency: float = 0.03) -> Cluster:
        """As many nodes at each site, joined by a WAN."""
        pools = tuple(Pool(node, count, site) for count, site in zip(nodes, "abc", strict=False))
        return Cluster("sites", pools, Wan(wan * 1e9, latency))

    @staticmethod
    def scaled(cluster: Cluster, factor: float) -> Cluster:
        """The same cluster with every bandwidth multiplied."""

        def node(old: Node) -> Node:
            return replace(
                old,
                accelerator=replace(old.accelerator, pcie_bandwidth=old.accelerator.pcie_bandwidth * factor),
                link_bandwidth=old.link_bandwidth * factor,
                link_pairs={pair: rate * factor for pair, rate in old.link_pairs.items()},
                socket_bandwidth=old.socket_bandwidth * factor,
                host_memory_bandwidth=old.host_memory_bandwidth * factor,
                fabric=replace(old.fabric, nic_bandwidth=old.fabric.nic_bandwidth * factor),
            )

        pools = tuple(replace(pool, node=node(pool.node)) for pool in cluster.pools)
        wan = cluster.wan and replace(cluster.wan, bandwidth=cluster.wan.bandwidth * factor)
        return replace(cluster, pools=pools, wan=wan)


@pytest.fixture(scope="session")
def machines() -> Machines:
    return Machines()


@pytest.fixture(scope="session")
def dgx(machines):
    """Clusters of DGX H100 nodes by number."""
    return lambda nodes: machines.cluster(machines.switched(), nodes)


@pytest.fixture(scope="session")
def clusters(machines):
    """Clusters of 48 ranks, one for every kind of wiring and of network (samples.KINDS)."""
    fabric = machines.fabric
    pods = fabric(8, 50.0, over=1.2, nodes_per_pod=4, pod_oversubscription=5)
    return {
        "dgx": machines.cluster(machines.switched(), 6),
        "thin leaves": machines.cluster(machines.switched(fabric=fabric(4, 12.5, over=3, per_leaf=2)), 6),
        "thin rails": machines.cluster(machines.switched(fabric=fabric(8, 50.0, over=4)), 6),
        "pods": machines.cluster(machines.switched(fabric=pods), 6),
        "cube mesh": machines.cluster(machines.dgx1(), 6),
        "racks": machines.cluster(machines.switched(2, fabric=fabric(2, 50.0), domain_nodes=9), 24),
        "pcie": machines.cluster(machines.pcie(gpus_per_pcie_switch=4), 6),
        "host": machines.cluster(machines.pcie(peers=False, host_memory_bandwidth=200e9), 6),
        "sites": machines.sites(machines.switched(), (4, 2), wan=5.0),
    }
