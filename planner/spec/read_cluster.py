"""A cluster from a TOML file; the schema, with examples, is documented in docs/cluster.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from planner.errors import FileFormatError, SpecError
from planner.spec.cluster import Cluster, Node, Pool, Wan
from planner.spec.figures import at, check_complete, check_keys, count, positive_number, read_figures, table, text
from planner.spec.lookup import Lookup
from planner.spec.read_accelerator import read_prices
from planner.spec.read_node import named_parts, read_node
from planner.spec.toml_file import read_toml

POOL_KEYS = ("nodes", "node", "accelerator", "network", "usd_per_gpu_hour")
SITE_KEYS = (*POOL_KEYS, "site")
CLUSTER_KEYS = ("name", "pools", "wan", *POOL_KEYS)
MOST_NODES = 100_000
MOST_POOLS = 16
MOST_MIXED_NODES = 2048
"""Nodes of several pools together: each is routed by itself, where equal nodes are computed once."""
MOST_SPREAD = 10.0


def read_cluster(path: Path, lookup: Lookup) -> Cluster:
    """The cluster of a TOML file; names in it are resolved by `lookup`.

    Raises FileFormatError, naming file and key, for a file that cannot be read and for anything in it that is wrong.
    """
    entries = read_toml(path)
    try:
        return _cluster(entries, lookup, where=str(path), stem=path.stem)
    except FileFormatError:
        raise
    except SpecError as error:
        raise FileFormatError(str(error)) from error


def _cluster(entries: Mapping[str, Any], lookup: Lookup, *, where: str, stem: str) -> Cluster:
    check_keys(entries, CLUSTER_KEYS, where=where)
    name = text(entries.get("name", stem), where=at(where, "name"))
    if not name.isprintable():
        raise SpecError("must be one line of printable characters", where=at(where, "name"))
    pools = _pools(entries, lookup, where=where)
    if len(pools) > 1 and sum(pool.num_nodes for pool in pools) > MOST_MIXED_NODES:
        raise SpecError(f"the pools have more than {MOST_MIXED_NODES:,} nodes together", where=at(where, "pools"))
    wan = _wan(entries["wan"], where=at(where, "wan")) if "wan" in entries else None
    sites = sorted({pool.site for pool in pools})
    if len(sites) > 1 and wan is None:
        raise SpecError(f"sites {', '.join(map(repr, sites))} need a [wan] between them", where=where)
    if wan is not None and len(sites) < 2:
        raise SpecError("joins nothing: every pool is at one site", where=at(where, "wan"))
    return Cluster(name=name, pools=pools, wan=wan, notes=_notes(pools))


def _pools(entries: Mapping[str, Any], lookup: Lookup, *, where: str) -> tuple[Pool, ...]:
    if "pools" not in entries:
        pool = {key: entries[key] for key in POOL_KEYS if key in entries}
        return (_pool(pool, lookup, where=where, file=where),)
    shared = [key for key in POOL_KEYS if key in entries]
    if shared:
        raise SpecError(f"{shared[0]} belongs into each [[pools]], since the file has them", where=where)
    listed = entries["pools"]
    if not isinstance(listed, list) or not listed:
        raise SpecError("must be a list of tables: [[pools]]", where=at(where, "pools"))
    if len(listed) > MOST_POOLS:
        raise SpecError(
            f"must be {MOST_POOLS} pools at most, not {len(listed):,}: put equal nodes into one",
            where=at(where, "pools"),
        )
    return tuple(_pool(entry, lookup, where=at(where, f"pools[{i}]"), file=where) for i, entry in enumerate(listed))


def _pool(entry: Any, lookup: Lookup, *, where: str, file: str) -> Pool:
    entries = table(entry, where=where)
    check_keys(entries, SITE_KEYS, where=where)
    check_complete(entries, ("nodes", "node"), where=where)
    number = count(entries["nodes"], where=at(where, "nodes"), most=MOST_NODES)
    node = _node(entries["node"], lookup, where=at(where, "node"), file=file)
    node = replace(node, **named_parts(entries, lookup, where=where, base=node, origin=f"stated in {file}"))
    return Pool(_priced(node, entries, where=where), number, text(entries.get("site", ""), where=at(where, "site")))


def _node(entry: Any, lookup: Lookup, *, where: str, file: str) -> Node:
    """A node type by name, or from a table, which may name the one to start from as `base`."""
    if isinstance(entry, str):
        return lookup.node(entry, where=where)
    if not isinstance(entry, Mapping):
        raise SpecError("must be the name of a node type or a table", where=where)
    entries = dict(entry)
    base = None
    if "base" in entries:
        base = lookup.node(text(entries.pop("base"), where=at(where, "base")), where=at(where, "base"))
    name = text(entries.pop("name", base.name if base else Path(file).stem), where=at(where, "name"))
    return read_node(entries, lookup, where=where, name=name, base=base, origin=f"stated in {file}")


def _priced(node: Node, entries: Mapping[str, Any], *, where: str) -> Node:
    sources = dict(node.sources)
    prices = read_prices(entries, "usd_per_gpu_hour", sources, where=where)
    return replace(node, **prices, sources=sources) if prices else node


def _wan(entry: Any, *, where: str) -> Wan:
    entries = table(entry, where=where)
    check_keys(entries, ("bandwidth", "latency", "spread"), where=where)
    check_complete(entries, ("bandwidth", "latency"), where=where)
    figures, _ = read_figures(entries, {"bandwidth": "B/s", "latency": "s"}, where=where)
    return Wan(
        spread=positive_number(entries.get("spread", 0.0), where=at(where, "spread"), zero=True, most=MOST_SPREAD),
        **figures,
    )


def _notes(pools: tuple[Pool, ...]) -> tuple[str, ...]:
    kinds = {pool.node.accelerator.name for pool in pools}
    if len(kinds) == 1:
        return ()
    return (f"mixed accelerators ({', '.join(sorted(kinds))}): the slowest sets the pace of every step",)
