"""What is known of collectives on each kind of link, with the nearest kind standing in for what is not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from planner.catalogue.names import FOLDER
from planner.quantities import BytesPerSecond, Scalar, to_base
from planner.spec.cluster import Fabric
from planner.spec.profile import COLLECTIVES, CollectiveFit
from planner.spec.toml_file import read_toml

TWINS = {"all_gather": "reduce_scatter", "reduce_scatter": "all_gather"}
"""The same transfers run backwards."""
TIMES = ("start", "step_latency", "hop_latency")

Fits = Mapping[tuple[str, str], CollectiveFit]


def collective_fits(fabric: Fabric | None = None) -> Fits:
    """Fits of every collective on every kind of link and fabric; those taken from elsewhere say so in `source`.

    With a `fabric`, its kind's efficiency accounts for its speed where that matters: sockets reach a few GB/s per
    node however fast the NICs are.
    """
    found = {(kind, name): _fit(kind, name) for kind in _entries() for name in COLLECTIVES}
    if fabric is None:
        return found
    limited = {
        key: _at_speed(fit, key[0], fabric.node_bandwidth) for key, fit in found.items() if key[0] == fabric.kind
    }
    return found | limited


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


def _at_speed(fit: CollectiveFit, kind: str, bandwidth: BytesPerSecond) -> CollectiveFit:
    entry = _entries()[kind]
    if "limit_gb_per_s" not in entry or not bandwidth:
        return fit
    reached = min(entry["efficiency_at_most"], to_base(entry["limit_gb_per_s"], "GB/s") / float(bandwidth))
    scale: Scalar = reached / entry["all_reduce"]["efficiency"]
    return replace(
        fit,
        efficiency=min(fit.efficiency * scale, entry["efficiency_at_most"]),
        low_latency_share=fit.low_latency_share * scale,
    )


@cache
def _entries() -> dict[str, dict[str, Any]]:
    return read_toml(FOLDER / "collectives.toml")
