"""What is known of collectives on each kind of link, with the nearest kind standing in for what is not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from planner.catalogue.names import FOLDER
from planner.quantities import BytesPerSecond, Scalar, to_base
from planner.spec.cluster import Fabric
from planner.spec.profile import COLLECTIVES, TREES, TWO_DOMAINS, CollectiveFit
from planner.spec.toml_file import read_toml

TWINS = {"all_gather": "reduce_scatter", "reduce_scatter": "all_gather", "reduce": "broadcast"}
"""The same transfers run backwards."""
TIMES = ("start", "step_latency", "hop_latency")
FABRICS = ("infiniband", "roce", "efa", "slingshot", "omnipath", "ethernet", "tcpx", "tcpxo", "wan", "none")
"""Kinds that join domains; all others are links inside one."""

Fits = Mapping[tuple[str, str], CollectiveFit]


def collective_fits(fabric: Fabric | None = None) -> Fits:
    """Fits of every collective on every kind of link and fabric; those taken from elsewhere say so in `source`.

    A fabric between links of one generation has a kind of its own where it was measured: "slingshot-nvlink3". With a
    `fabric`, shares account for its speed where that matters: sockets reach a few GB/s per node however fast the NICs
    are.
    """
    found = _all_fits()
    if fabric is None or not fabric.node_bandwidth or "limit_gb_per_s" not in _entries().get(fabric.kind, {}):
        return found
    scale: Scalar = limited_bandwidth(fabric.kind, fabric.node_bandwidth) / float(fabric.node_bandwidth)
    slowed = {key: _scaled(fit, scale) for key, fit in found.items() if key[0].split("-")[0] == fabric.kind}
    return {**found, **slowed}


def limited_bandwidth(kind: str, bandwidth: BytesPerSecond) -> BytesPerSecond:
    """What the shares of a kind of fabric are shares of: the node's NICs together, or these after the software.

    Sockets copy every byte at a few GB/s while others are sent: 1 / sqrt(1 / bandwidth**2 + 1 / limit**2).

    >>> round(limited_bandwidth("ethernet", 3e9) / 1e9, 2), limited_bandwidth("infiniband", 50e9) / 1e9
    (2.4, 50.0)
    """
    limit = _entries().get(kind, {}).get("limit_gb_per_s")
    return (bandwidth**-2 + to_base(limit, "GB/s") ** -2) ** -0.5 if limit else bandwidth


def kind_of(fabric: str, link: str) -> str:
    """The kind of fabric between links of a kind: one of its own where there is one, else the fabric's."""
    return next((kind for kind in (f"{fabric}-{link}", fabric) if kind in _entries()), fabric)


def is_measured(kind: str, collective: str) -> bool:
    """Whether the figures of a collective on a kind of link come from measurements of that kind."""
    entry = _entries().get(kind, {})
    name = next((name for name in (collective, TWINS.get(collective)) if name in entry), None)
    return name is not None and bool(entry[name].get("points", 0))


@cache
def _all_fits() -> Fits:
    found = {(kind, name): _fit(kind, name) for kind in _entries() for name in COLLECTIVES}
    trees = {(kind, name): _trees(kind, name) for kind in _entries() for name in (TWO_DOMAINS, TREES)}
    return found | {key: fit for key, fit in trees.items() if fit}


def _trees(kind: str, name: str) -> CollectiveFit | None:
    """What trees between domains reach, of the kind or of the one that it is like; None where nothing is said."""
    entry = _entries()[kind]
    if name in entry:
        return _read(entry[name])
    return _trees(entry["like"], name) if "like" in entry else None


def kinds() -> tuple[str, ...]:
    """Every kind of link and fabric."""
    return tuple(_entries())


def _fit(kind: str, collective: str) -> CollectiveFit:
    origin = _origin(kind, collective)
    fit = _read(_entries()[origin[0]][origin[1]])
    borrowed = origin != (kind, collective) and fit.source
    return replace(fit, source=f"as {' '.join(origin)}: {fit.source}") if borrowed else fit


def _origin(kind: str, collective: str) -> tuple[str, str]:
    """Whose figures are used: the pair's own, its twin's, the similar kind's, or the kind's all-reduce."""
    entry = _entries()[kind]
    own = next((name for name in (collective, TWINS.get(collective)) if name in entry), None)
    if own:
        return kind, own
    return _origin(entry["like"], collective) if "like" in entry else (kind, "all_reduce")


def _read(entry: Mapping[str, Any]) -> CollectiveFit:
    times = {name: to_base(entry.get(f"{name}_us", 0.0), "us") for name in TIMES}
    return CollectiveFit(
        efficiency=entry["efficiency"],
        low_latency_share=entry.get("low_latency_share", 0.0),
        source=entry["source"],
        **times,
    )


def _scaled(fit: CollectiveFit, scale: Scalar) -> CollectiveFit:
    return replace(fit, efficiency=fit.efficiency * scale, low_latency_share=fit.low_latency_share * scale)


def scaled(fit: CollectiveFit, time: Scalar) -> CollectiveFit:
    """The fit of calls that take so many times as long."""
    times = {name: getattr(fit, name) * time for name in TIMES}
    return replace(fit, efficiency=fit.efficiency / time, low_latency_share=fit.low_latency_share / time, **times)


@cache
def _entries() -> dict[str, dict[str, Any]]:
    return read_toml(FOLDER / "collectives.toml")
