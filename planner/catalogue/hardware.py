"""Accelerators, node types, networks and clusters by name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from planner.catalogue.names import FOLDER, header, names, normalised, path_of, slug_of, unknown
from planner.errors import SpecError, unknown_name
from planner.spec.accelerator import Accelerator
from planner.spec.cluster import Cluster, Fabric, Node, Pool
from planner.spec.figures import count as checked_count
from planner.spec.lookup import Lookup
from planner.spec.node_part import first_accelerators
from planner.spec.read_accelerator import read_accelerator
from planner.spec.read_cluster import MOST_NODES, read_cluster
from planner.spec.read_node import read_fabric, read_node
from planner.spec.toml_file import read_toml

ONE_HOST = 8
"""The most accelerators that are ever assumed to sit in one host."""
OWN_KEYS = ("aliases", "standard_node")
"""What a catalogue file says beside the figures of the thing itself."""


def accelerator(name: str, *, where: str = "") -> Accelerator:
    """An accelerator by slug or alias, whatever the case.

    Raises SpecError, which starts with `where`, for a name that the catalogue does not have.

    >>> accelerator("H100-SXM5-80GB").name
    'h100-sxm'
    """
    slug = slug_of("accelerators", name)
    if slug is None:
        raise unknown("accelerator", name, ("accelerators",), where=where)
    return _accelerator(slug)


def node(name: str, *, where: str = "") -> Node:
    """A node type by slug or alias, whatever the case.

    Raises SpecError, which starts with `where`, for a name that the catalogue does not have.

    >>> node("DGX-H100").gpus_per_node
    8
    """
    slug = slug_of("nodes", name)
    if slug is None:
        raise unknown("node type", name, ("nodes",), where=where)
    return _node(slug)


def network(text: str, *, where: str = "") -> Fabric:
    """A network by name; "roce-400x4" has four NICs in each node.

    Without a number, a network that is sold by the node (efa-3200, gcp-tcpx) or that hosts have one port of (tcp-*)
    says its own; of any other `nics_per_node` is 0, which `Cluster.with_fabric` and the readers take as the number
    that the node has. Raises SpecError, which starts with `where`, for an unknown name.

    >>> network("roce-400x4").node_bandwidth == 4 * 50e9
    True
    """
    found = re.fullmatch(r"(.+?)(?:x(\d{1,4}))?", text.strip().lower())
    name = _network_slug(found[1]) if found else None
    if found is None or name is None:
        raise unknown_name("network", text, [*_networks(), *_network_aliases()], where=where)
    fabric = _fabric(name)
    if found[2] is None:
        return fabric
    nics = checked_count(int(found[2]), where=f"{where}: NICs" if where else "NICs per node", most=1024)
    return replace(fabric, nics_per_node=nics)


def cluster(text: str) -> Cluster:
    """A cluster from its description, or from a TOML file.

    `<nodes>x<node type>` ("4xdgx-h100"); `<count>x<accelerator>`: up to eight on one host ("2xrtx-4090"), more on whole
    standard nodes of that accelerator ("64xh100-sxm" is 8xhgx-h100, said in `notes`); or the path of a TOML file
    (docs/cluster.md). Raises SpecError, or FileFormatError for an unreadable file.

    >>> cluster("64xh100-sxm").name, cluster("2xrtx-4090").num_nodes
    ('8xhgx-h100', 1)
    """
    if text.lower().endswith(".toml") or "/" in text:
        return read_cluster(Path(text), LOOKUP)
    found = re.fullmatch(r"\s*(\d+)\s*[xX]\s*(\S.*?)\s*", text)
    if not found:
        raise SpecError("write <nodes>x<node type> (4xdgx-h100), <count>x<accelerator> or a .toml file", where=text)
    if len(found[1]) > 7:
        raise SpecError(f"more than {MOST_NODES:,} nodes", where=text)
    number, name = int(found[1]), found[2]
    if slug := slug_of("nodes", name):
        return _of_nodes(checked_count(number, where=text, most=MOST_NODES), _node(slug))
    if slug := slug_of("accelerators", name):
        return _of_accelerators(checked_count(number, where=text, most=ONE_HOST * MOST_NODES), slug, where=text)
    raise unknown("node type or accelerator", name, ("nodes", "accelerators"), where=text)


def accelerator_names() -> Mapping[str, tuple[str, ...]]:
    """Every accelerator's name -> its aliases."""
    return names("accelerators")


def node_names() -> Mapping[str, tuple[str, ...]]:
    """Every node type's name -> its aliases."""
    return names("nodes")


def network_names() -> Mapping[str, tuple[str, ...]]:
    """Every network's name -> its aliases."""
    return {name: tuple(entries.get("aliases", ())) for name, entries in _networks().items()}


def standard_node(name: str) -> str | None:
    """The node type that many of an accelerator are assumed to sit in, or None if the catalogue names none."""
    return header("accelerators", accelerator(name).name).get("standard_node")


LOOKUP = Lookup(accelerator=accelerator, node=node, network=network)
"""The catalogue, for the readers of specifications."""


@cache
def _accelerator(slug: str) -> Accelerator:
    entries = read_toml(path_of("accelerators", slug))
    own = {key: entries.pop(key) for key in OWN_KEYS if key in entries}
    found = read_accelerator(entries, where=f"{slug}.toml", name=slug)
    return replace(found, aliases=tuple(own.get("aliases", ())))


@cache
def _node(slug: str) -> Node:
    entries = read_toml(path_of("nodes", slug))
    aliases = tuple(entries.pop("aliases", ()))
    return replace(read_node(entries, LOOKUP, where=f"{slug}.toml", name=slug), aliases=aliases)


@cache
def _networks() -> dict[str, dict[str, Any]]:
    return read_toml(FOLDER / "networks.toml")


@cache
def _fabric(slug: str) -> Fabric:
    entries = {key: value for key, value in _networks()[slug].items() if key not in OWN_KEYS}
    return read_fabric(entries, where=f"networks.toml: {slug}", name=slug)


def _network_aliases() -> dict[str, str]:
    return {normalised(alias): slug for slug, aliases in network_names().items() for alias in aliases}


def _network_slug(name: str) -> str | None:
    wanted = normalised(name)
    return wanted if wanted in _networks() else _network_aliases().get(wanted)


def _of_nodes(number: int, machine: Node) -> Cluster:
    return Cluster(f"{number}x{machine.name}", (Pool(machine, number),), notes=tuple(_domain_notes(number, machine)))


def _of_accelerators(number: int, slug: str, *, where: str) -> Cluster:
    """`number` accelerators on the first part of one host, or on whole standard nodes."""
    standard = header("accelerators", slug).get("standard_node")
    if standard is None:
        raise SpecError(f"{slug} has no standard node; write a cluster TOML (docs/cluster.md)", where=where)
    machine = _node(standard)
    size = machine.gpus_per_node
    if number % size == 0:
        made = _of_nodes(number // size, machine)
        return replace(made, notes=(f"{number}x{slug} is taken as {made.name}", *made.notes))
    if number > min(size, ONE_HOST):
        alone = min(size, ONE_HOST)
        whole = [each for each in (number // size * size, number // size * size + size) if each > alone]
        raise SpecError(
            f"{number} {slug} do not fill whole {standard} nodes of {size}; possible: 1 to {alone} on one host, or "
            f"{' or '.join(map(str, whole))}",
            where=where,
        )
    note = f"{number}x{slug} is taken as one {standard} host with {number} of its {size} accelerators"
    return Cluster(f"{number}x{slug}", (Pool(first_accelerators(machine, number), 1),), notes=(note,))


def _domain_notes(number: int, machine: Node) -> list[str]:
    if machine.domain_nodes == 1:
        return []
    shared = min(number, machine.domain_nodes)
    return [
        f"a {machine.name} node is one tray of {machine.gpus_per_node} accelerators; "
        f"{machine.domain_nodes} trays share one link domain ({shared * machine.gpus_per_node} accelerators of it here)"
    ]
