"""The cluster that a row states: the node type that meets it best, with the stated number of accelerators and NICs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache

from planner.catalogue.hardware import accelerator, network, network_names, node, node_names, standard_node
from planner.quantities import BytesPerSecond, to_base
from planner.spec.cluster import Cluster, Fabric, Node, Pool, Wiring
from planner.spec.node_part import first_accelerators
from planner.validate.columns import Stated
from planner.validate.complete import SkippedRun

LINKS = {
    "nvl72": "nvlink5",
    "nvlink-400": "nvlink",
    "ethernet": "gaudi",
    "pcie4": "pcie",
    "pcie5": "pcie",
    "pcie3": "pcie",
}
"""Word for the wiring inside a node -> what the catalogue's names of such links begin with."""
KINDS = {"rdma": ("infiniband", "roce"), "unknown": (), "": (), "none": (), "ethernet": ("ethernet", "roce")}
"""Word for the network -> kinds that may be meant; a kind of its own means itself."""
SAME_RATE = 0.02


@dataclass(frozen=True)
class Machines:
    """What a row says of its hardware."""

    gpu: str
    n_gpus: int
    gpus_per_node: int
    intra: str
    fabric: str
    nic_gbps_per_gpu: float


def run_cluster(filled: Stated) -> tuple[Cluster, tuple[str, ...]]:
    """The cluster of a row, and what was assumed of it.

    Raises SpecError for an unknown accelerator, SkippedRun where nodes would not be full.
    """
    return _cluster(
        Machines(filled.gpu, filled.n_gpus, filled.gpus_per_node, filled.intra, filled.fabric, filled.nic_gbps_per_gpu)
    )


@lru_cache(maxsize=4096)
def _cluster(stated: Machines) -> tuple[Cluster, tuple[str, ...]]:
    part = accelerator(stated.gpu)
    known = _best_node(stated, part.name)
    if known is None:
        raise SkippedRun(f"no node type of {part.name} is known")
    each = min(stated.gpus_per_node or known.gpus_per_node, stated.n_gpus)
    if stated.n_gpus % each:
        raise SkippedRun(f"{stated.n_gpus} GPUs do not fill nodes of {each}")
    count = stated.n_gpus // each
    sized, of_domain = _even_domains(_sized(known, each), count)
    fabric, of_fabric = _fabric(stated, sized) if count > 1 else (sized.fabric, ())
    guessed = not stated.gpus_per_node and stated.n_gpus > known.gpus_per_node
    cluster = Cluster(f"{count}x{known.name}", (Pool(replace(sized, fabric=fabric), count),))
    return cluster, (*([f"gpus_per_node {each}"] if guessed else []), *of_domain, *of_fabric)


def _even_domains(sized: Node, count: int) -> tuple[Node, tuple[str, ...]]:
    """The node with as many neighbours in its link domain as fill all domains alike, as schedulers allot racks.

    64 trays of racks of 18 are four times 16: groups of 64 accelerators then stay within a rack.
    """
    if count <= sized.domain_nodes:
        return sized, ()
    even = max(nodes for nodes in range(1, sized.domain_nodes + 1) if count % nodes == 0)
    if even in (1, sized.domain_nodes):
        return sized, ()
    return replace(sized, domain_nodes=even), (f"{even} nodes of each link domain",)


def _sized(known: Node, gpus: int) -> Node:
    """The node with more or fewer accelerators; NICs go with them."""
    if gpus <= known.gpus_per_node:
        return first_accelerators(known, gpus)
    if known.wiring is Wiring.MESH:
        raise SkippedRun(f"{known.name} is a mesh of {known.gpus_per_node}, not of {gpus}")
    nics = known.fabric.nics_per_node * gpus // known.gpus_per_node
    return replace(known, gpus_per_node=gpus, fabric=replace(known.fabric, nics_per_node=nics))


def _best_node(stated: Machines, name: str) -> Node | None:
    """The accelerator's node type that meets most of what is stated; the standard one among equals."""
    own = [each for each in _nodes() if each.accelerator.name == name]
    standard = standard_node(name)
    if standard:
        own.insert(0, replace(node(standard), accelerator=accelerator(name)))
    return max(own, key=lambda each: _likeness(each, stated), default=None)


@cache
def _nodes() -> tuple[Node, ...]:
    return tuple(node(name) for name in node_names())


def _likeness(known: Node, stated: Machines) -> tuple[bool, bool, bool, bool]:
    kinds = _kinds(stated.fabric)
    rate = stated.nic_gbps_per_gpu and to_base(stated.nic_gbps_per_gpu, "Gb/s") * known.gpus_per_node
    return (
        not stated.intra or known.link.startswith(LINKS.get(stated.intra, stated.intra)),
        not kinds or known.fabric.kind in kinds,
        not stated.gpus_per_node or known.gpus_per_node == min(stated.gpus_per_node, known.gpus_per_node),
        not rate or abs(known.fabric.node_bandwidth - rate) <= SAME_RATE * rate,
    )


def _kinds(word: str) -> tuple[str, ...]:
    return KINDS.get(word, (word,))


def _fabric(stated: Machines, sized: Node) -> tuple[Fabric, tuple[str, ...]]:
    """The network between nodes: as stated, of the standard node where not."""
    own, kinds = sized.fabric, _kinds(stated.fabric)
    rate = to_base(stated.nic_gbps_per_gpu, "Gb/s") * sized.gpus_per_node
    kind = own.kind if own.kind in kinds or not kinds else kinds[0]
    same_kind = own.kind == kind
    if same_kind and (not rate or abs(own.node_bandwidth - rate) <= SAME_RATE * rate):
        return own, () if kinds and rate else (f"network {own.name} x {own.nics_per_node} per node",)
    found = _of_rate(kind, rate or own.node_bandwidth, sized.gpus_per_node)
    if found is None:
        return own, (f"network {own.name} x {own.nics_per_node} per node",)
    return found, () if rate else (f"network {found.name} x {found.nics_per_node} per node",)


def _of_rate(kind: str, rate: BytesPerSecond, gpus: int) -> Fabric | None:
    """The catalogue's network of a kind whose NICs add up to the node's rate, most nearly one per accelerator."""
    candidates = []
    for fabric in _networks().get(kind, ()):
        nics = max(round(rate / fabric.nic_bandwidth), 1)
        fitted = replace(fabric, nics_per_node=nics, nic_bandwidth=rate / nics)
        distance = abs(nics * fabric.nic_bandwidth - rate) / rate
        candidates.append(((distance > SAME_RATE, abs(nics - gpus), distance), fitted))
    return min(candidates, key=lambda candidate: candidate[0])[1] if candidates else None


@cache
def _networks() -> Mapping[str, tuple[Fabric, ...]]:
    found: dict[str, tuple[Fabric, ...]] = {}
    for fabric in (network(name) for name in network_names()):
        found[fabric.kind] = (*found.get(fabric.kind, ()), fabric)
    return found
