"""Networks and nodes from TOML tables; the schema is documented in docs/cluster.md."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from planner.errors import SpecError
from planner.spec.accelerator import Source
from planner.spec.cluster import Fabric, Node, Wiring
from planner.spec.figures import (
    at,
    check_complete,
    check_keys,
    count,
    flag,
    one_of,
    positive_number,
    read_figures,
    table,
    text,
)
from planner.spec.lookup import Lookup, NamedFabric
from planner.spec.mesh import pair_bandwidth, read_pairs
from planner.spec.node_part import first_accelerators
from planner.spec.read_accelerator import accelerator_entry, read_prices

FABRIC_KINDS = ("infiniband", "roce", "efa", "slingshot", "omnipath", "ethernet", "tcpx", "gloo", "none")
SLOTS = ("pcie3", "pcie4", "pcie5")
MOST_SLOTS = 32
LINKS = ("nvlink2", "nvlink3", "nvlink4", "nvlink5", "xgmi", "gaudi", *SLOTS, "loopback")
"""Links whose efficiencies the catalogue knows."""
FABRIC_FIGURES = {"nic_bandwidth": "B/s", "latency": "s"}
FABRIC_COUNTS = {"nics_per_node": (1, 1024), "nodes_per_leaf": (0, 1_000_000), "nodes_per_pod": (0, 1_000_000)}
FABRIC_RATIOS = ("oversubscription", "pod_oversubscription")
FABRIC_KEYS = (*FABRIC_FIGURES, *FABRIC_COUNTS, *FABRIC_RATIOS, "kind", "source", "read")
NODE_FIGURES = {
    "link_bandwidth": "B/s",
    "link_latency": "s",
    "socket_bandwidth": "B/s",
    "host_memory": "B",
    "host_memory_bandwidth": "B/s",
}
NODE_COUNTS = {
    "gpus_per_node": (1, 256),
    "domain_nodes": (1, 1024),
    "sockets": (1, 32),
    "gpus_per_pcie_switch": (0, 256),
}
"""Whole numbers of a node, with the least and the most that each may be."""
NODE_FLAGS = ("in_network_reduction", "nics_on_accelerators")
NODE_KEYS = (
    *NODE_FIGURES,
    *NODE_COUNTS,
    *("accelerator", "wiring", "link", "link_pairs", "network", *NODE_FLAGS, "usd_per_gpu_hour"),
    *("notes", "source", "read"),
)
REQUIRED = ("accelerator", "gpus_per_node", "wiring", "link", "link_bandwidth", "link_latency", "network")
MOST_OVERSUBSCRIBED = 1000.0


def read_fabric(
    entries: Mapping[str, Any], *, where: str, name: str = "", base: Fabric | None = None, origin: str = ""
) -> Fabric:
    """A network from its table; with `base`, what the table does not say stays as it is there.

    `nics_per_node` is 0 where nobody says it. `origin` is the source of figures that name none. Raises SpecError.
    """
    check_keys(entries, FABRIC_KEYS, where=where)
    figures, sources = read_figures(entries, FABRIC_FIGURES, where=where, origin=origin)
    given: dict[str, Any] = dict(figures)
    if "kind" in entries:
        given["kind"] = one_of(entries["kind"], FABRIC_KINDS, "kind of network", where=at(where, "kind"))
    for key, (least, most) in FABRIC_COUNTS.items():
        if key in entries:
            given[key] = count(entries[key], where=at(where, key), least=least, most=most)
            sources[key] = Source(source=str(entries.get("source", origin)), read=str(entries.get("read", "")))
    given |= {key: _ratio(entries[key], where=at(where, key)) for key in FABRIC_RATIOS if key in entries}
    if base is not None:
        fabric = replace(base, name=name or base.name, **given, sources={**base.sources, **sources})
    else:
        check_complete(given, ("kind", "nic_bandwidth", "latency"), where=where)
        given.setdefault("nics_per_node", 0)
        fabric = Fabric(name=name or given["kind"], sources=sources, **given)
    _check_pods(fabric, where=where)
    return fabric


def _ratio(entry: Any, *, where: str) -> float:
    ratio = positive_number(entry, where=where, most=MOST_OVERSUBSCRIBED)
    if ratio < 1:
        raise SpecError(f"must be at least 1 (non-blocking), not {ratio:g}", where=where)
    return ratio


def _check_pods(fabric: Fabric, *, where: str) -> None:
    """Raise SpecError where a leaf would belong to two pods, or pods are thin that are not there."""
    pod, leaf = fabric.nodes_per_pod, fabric.nodes_per_leaf
    if pod and leaf and pod % leaf:
        raise SpecError(f"must be a multiple of nodes_per_leaf ({leaf}), not {pod}", where=at(where, "nodes_per_pod"))
    if fabric.pod_oversubscription > 1 and not pod:
        raise SpecError("needs nodes_per_pod: how many nodes are a pod", where=at(where, "pod_oversubscription"))


def fabric_entry(
    entry: Any, lookup: NamedFabric, *, where: str, start: Fabric | None = None, origin: str = ""
) -> Fabric:
    """A network by name, such as "roce-400x4", or from a table, which may name the one to start from as `name`.

    Where it does not say how many NICs a node has, they are those of `start`, or one. Raises SpecError.
    """
    own_nics = start.nics_per_node if start else 1
    if isinstance(entry, str):
        named = lookup(entry, where=where)
        return replace(named, nics_per_node=named.nics_per_node or own_nics)
    entries = dict(table(entry, where=where))
    if "name" in entries:
        start = lookup(text(entries.pop("name"), where=at(where, "name")), where=at(where, "name"))
    elif "kind" in entries:
        start = None
    fabric = read_fabric(entries, where=where, base=start, origin=origin)
    return replace(fabric, nics_per_node=fabric.nics_per_node or own_nics)


def read_node(
    entries: Mapping[str, Any], lookup: Lookup, *, where: str, name: str, base: Node | None = None, origin: str = ""
) -> Node:
    """A node type from its table; with `base`, what the table does not say stays as it is there.

    Fewer accelerators than `base` has are its first ones. `origin` is the source of figures that name none. Raises
    SpecError.
    """
    check_keys(entries, NODE_KEYS, where=where)
    figures, sources = read_figures(entries, NODE_FIGURES, where=where, origin=origin)
    given: dict[str, Any] = figures | _plain(entries, where=where)
    given |= read_prices(entries, "usd_per_gpu_hour", sources, where=where)
    if base is not None:
        base = first_accelerators(base, given.get("gpus_per_node", base.gpus_per_node))
    given |= named_parts(entries, lookup, where=where, base=base, origin=origin)
    if "source" in entries:
        sources["layout"] = Source(source=str(entries["source"]), read=str(entries.get("read", "")))
    if "link_pairs" in entries or given.get("wiring") is Wiring.MESH:
        _add_mesh(given, sources, entries, gpus=_gpus(given, base, where=where), where=where, origin=origin)
    if base is not None:
        _check_mesh_grows_with_pairs(given, base, where=where)
        node = replace(base, name=name, **given, sources={**base.sources, **sources})
    else:
        check_complete([*given, *entries], REQUIRED, where=where)
        node = Node(**given, name=name, sources=sources)
    _check_slots(node, where=where)
    return node


def _check_slots(node: Node, *, where: str) -> None:
    """Raise SpecError where accelerators in slots are linked by something else, or are more than a host has slots."""
    if node.wiring not in (Wiring.PCIE, Wiring.HOST):
        return
    kind = node.wiring.name.lower()
    if node.link not in SLOTS:
        raise SpecError(f"{node.link} is no link of wiring {kind}; known: {', '.join(SLOTS)}", where=at(where, "link"))
    if node.gpus_per_node > MOST_SLOTS:
        raise SpecError(f"must be 1 to {MOST_SLOTS} with wiring {kind}", where=at(where, "gpus_per_node"))


def check_node(node: Node, *, where: str) -> None:
    """Raise SpecError unless kinds and whole numbers of a node and of its network are such as their tables may say."""
    one_of(node.link, LINKS, "link", where=at(where, "link"))
    _check_slots(node, where=where)
    one_of(node.fabric.kind, FABRIC_KINDS, "kind of network", where=at(where, "fabric.kind"))
    for key, (least, most) in NODE_COUNTS.items():
        count(getattr(node, key), where=at(where, key), least=least, most=most)
    for key, (_, most) in FABRIC_COUNTS.items():
        count(getattr(node.fabric, key), where=at(where, f"fabric.{key}"), least=0, most=most)
    for key in FABRIC_RATIOS:
        _ratio(getattr(node.fabric, key), where=at(where, f"fabric.{key}"))
    _check_pods(node.fabric, where=at(where, "fabric"))


def named_parts(
    entries: Mapping[str, Any], lookup: Lookup, *, where: str, base: Node | None, origin: str
) -> dict[str, Any]:
    """The accelerator and the network (as `fabric`), where the table has them; tables start from those of `base`."""
    given: dict[str, Any] = {}
    if "accelerator" in entries:
        start = base.accelerator if base else None
        given["accelerator"] = accelerator_entry(
            entries["accelerator"], lookup.accelerator, where=at(where, "accelerator"), start=start, origin=origin
        )
    if "network" in entries:
        own = base.fabric if base else None
        given["fabric"] = fabric_entry(
            entries["network"], lookup.network, where=at(where, "network"), start=own, origin=origin
        )
    return given


def _plain(entries: Mapping[str, Any], *, where: str) -> dict[str, Any]:
    """What a node says in words, flags and whole numbers."""
    given: dict[str, Any] = {}
    if "link" in entries:
        given["link"] = one_of(entries["link"], LINKS, "link", where=at(where, "link"))
    if "notes" in entries:
        given["notes"] = text(entries["notes"], where=at(where, "notes"))
    for key, (least, most) in NODE_COUNTS.items():
        if key in entries:
            given[key] = count(entries[key], where=at(where, key), least=least, most=most)
    if "wiring" in entries:
        names = [kind.name.lower() for kind in Wiring]
        given["wiring"] = Wiring[one_of(entries["wiring"], names, "wiring", where=at(where, "wiring")).upper()]
    given |= {key: flag(entries[key], where=at(where, key)) for key in NODE_FLAGS if key in entries}
    return given


def _gpus(given: Mapping[str, Any], base: Node | None, *, where: str) -> int:
    gpus = given.get("gpus_per_node", base.gpus_per_node if base else 0)
    if not gpus:
        raise SpecError("lacks gpus_per_node", where=where)
    return int(gpus)


def _add_mesh(
    given: dict[str, Any],
    sources: dict[str, Source],
    entries: Mapping[str, Any],
    *,
    gpus: int,
    where: str,
    origin: str,
) -> None:
    """Add the pairs of a mesh, and as link bandwidth what the best linked accelerator has."""
    if "link_pairs" not in entries:
        raise SpecError("a mesh needs link_pairs: which accelerators are linked", where=where)
    pairs, source = read_pairs(entries["link_pairs"], gpus, where=at(where, "link_pairs"), origin=origin)
    best = max(pair_bandwidth(pairs, gpu) for gpu in range(gpus))
    stated = given.get("link_bandwidth", best)
    if not math.isclose(best, stated, rel_tol=0.02):
        raise SpecError(
            f"link_pairs sum to {best / 1e9:g} GB/s an accelerator, but link_bandwidth says {stated / 1e9:g}",
            where=where,
        )
    given |= {"link_pairs": pairs, "link_bandwidth": best, "wiring": Wiring.MESH}
    sources["link_pairs"] = source
    sources.setdefault("link_bandwidth", source)


def _check_mesh_grows_with_pairs(given: Mapping[str, Any], base: Node, *, where: str) -> None:
    meshed = given.get("wiring", base.wiring) is Wiring.MESH
    if meshed and given.get("gpus_per_node", 0) > base.gpus_per_node and "link_pairs" not in given:
        raise SpecError("a mesh of more accelerators needs link_pairs", where=where)
