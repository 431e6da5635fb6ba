"""The machine that was measured as a cluster of the planner's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calibration import kernel_profile as kernels
from calibration.measurements import Machine, Measured
from calibration.record import Record
from planner.catalogue.hardware import LOOKUP, cluster
from planner.catalogue.names import slug_of
from planner.dumps.cluster_toml import cluster_toml
from planner.dumps.node import HostNode
from planner.quantities import Bytes, BytesPerSecond, Seconds
from planner.spec.cluster import Cluster, Pool
from planner.spec.read_node import read_node

LOOPBACK_SHARE = 0.25
"""Of memory bandwidth that a message between two processes gets where none was timed: it is copied out and in."""
LOOPBACK_LATENCY: Seconds = 1e-4
LARGE_MESSAGE: Bytes = 2**20


@dataclass(frozen=True)
class Described:
    """A cluster, and the file that describes it where the catalogue does not."""

    cluster: Cluster
    toml: str = ""


def cluster_of(record: Record, text: str | None = None) -> Described | None:
    """The cluster that is named, else that of a known accelerator, else one that the measurements describe.

    The file that an earlier run wrote beside the record is written anew, since its figures are the record's. None where
    too little was measured to describe the machine. Raises SpecError or FileFormatError for a name that is unknown.
    """
    own = text is not None and Path(text).resolve() == toml_path(record).resolve()
    named = known_cluster(record.machine) if text is None or own else text
    if named:
        return Described(cluster(named))
    entries = _node(record)
    if entries is None:
        return None
    name = str(entries["accelerator"]["name"])
    node = read_node(entries, LOOKUP, where=name, name=name)
    host = HostNode(node, entries, told=_told(record), assumed=tuple(_assumed(record)))
    nodes = int(record.machine.nodes)
    return Described(Cluster(name, (Pool(node, nodes),)), cluster_toml(host, nodes=nodes))


def known_cluster(here: Machine) -> str | None:
    """The machine as the catalogue calls it; None where it does not have the accelerator."""
    known = slug_of("accelerators", here.name)
    return f"{here.processes}x{known}" if known else None


def toml_path(record: Record) -> Path:
    """Where the description goes: beside the profile."""
    return record.path.with_suffix(".toml")


def _node(record: Record) -> dict[str, Any] | None:
    """The table of a node, each of whose processes is an accelerator."""
    here, stream, peaks = record.machine, kernels.bandwidth(record), kernels.rates(record)
    if stream is None or not peaks:
        return None
    link = link_bandwidth(record) or LOOPBACK_SHARE * stream
    return {
        "gpus_per_node": int(here.processes // here.nodes),
        "wiring": "switch" if here.device == "cpu" else "pcie",
        "link": "loopback" if here.device == "cpu" else "pcie4",
        "link_bandwidth": _figure(link / 1e9, "GB/s", record),
        "link_latency": _figure((link_latency(record) or LOOPBACK_LATENCY) * 1e6, "us", record),
        "sockets": 1,
        "host_memory": _figure(here.memory * here.processes / here.nodes / 2**30, "GiB", record),
        "host_memory_bandwidth": _figure(stream * here.processes / here.nodes / 1e9, "GB/s", record),
        "accelerator": _accelerator(record, stream, peaks),
        "network": _network(record),
    }


def _network(record: Record) -> str | dict[str, Any]:
    """What hosts are joined by; a name to be corrected where it is NCCL's, or no message between hosts was timed."""
    here = record.machine
    if here.nodes == 1:
        return {"kind": "none", "nic_bandwidth": "1 GB/s", "latency": "1 ms"}
    bandwidth, latency = link_bandwidth(record, between_hosts=True), link_latency(record, between_hosts=True)
    if here.device != "cpu" or bandwidth is None or latency is None:
        return "tcp-10"
    # All ranks of a host talk at once: each has a part of its way out.
    whole = bandwidth * here.processes / here.nodes
    return {
        "kind": "gloo",
        "nic_bandwidth": _figure(whole / 1e9, "GB/s", record),
        "latency": _figure(latency * 1e6, "us", record),
    }


def _accelerator(record: Record, stream: BytesPerSecond, peaks: Mapping[str, float]) -> dict[str, Any]:
    here = record.machine
    return {
        "name": _slug(here),
        "vendor": here.name.split("(")[0].split()[0].lower(),
        "architecture": here.device,
        **({"runs_on_host": True} if here.device == "cpu" else {}),
        "memory": _figure(here.memory / 2**30, "GiB", record),
        "usable_memory": _figure(here.memory / 2**30, "GiB", record),
        "memory_bandwidth": _figure(stream / 1e9, "GB/s", record),
        "pcie_bandwidth": _figure(stream / 1e9, "GB/s", record),
        "multiprocessors": int(here.multiprocessors or here.threads),
        "peak": {name: _figure(rate / 1e9, "GFLOP/s", record) for name, rate in peaks.items()},
    }


def link_bandwidth(record: Record, *, between_hosts: bool = False) -> BytesPerSecond | None:
    """What one rank sends at best, within a host or between two; None where no large message was timed."""
    rows = [row for row in _messages(record, between_hosts) if row[0]["bytes"] >= LARGE_MESSAGE]
    return max((parameters["bytes"] / measured.value for parameters, measured in rows), default=None)


def link_latency(record: Record, *, between_hosts: bool = False) -> Seconds | None:
    """What the smallest message takes."""
    return min((measured.value for _, measured in _messages(record, between_hosts)), default=None)


def _messages(record: Record, between_hosts: bool) -> list[tuple[Mapping[str, Any], Measured]]:
    """Timed messages within a host, or between two: a rank's partner is `stride` ranks away."""
    on_host = record.machine.processes // record.machine.nodes
    return [row for row in record.results("send_recv") if (row[0].get("stride", 1) >= on_host) == between_hosts]


def _figure(value: float, unit: str, record: Record) -> dict[str, Any]:
    return {"value": float(f"{value:.6g}"), "unit": unit, "source": f"measured on {record.machine.host}"}


def _slug(here: Machine) -> str:
    """A name for the accelerator that one process is.

    A file of a GPU that the catalogue does not have takes the driver's name.
    """
    words = re.sub(r"\((r|tm|c)\)|@.*|\bcpu\b|\bnvidia\b", " ", here.name, flags=re.IGNORECASE).lower()
    name = "-".join(re.findall(r"[a-z0-9.]+", words)) or here.device
    return f"{name}-{here.threads}-threads" if here.device == "cpu" else name


def _told(record: Record) -> tuple[str, ...]:
    here = record.machine
    shape = f"{here.processes} processes of {here.threads} threads on {here.nodes} x {here.cores} cores ({here.name})"
    return (f"{shape}, all measured at once; peaks are the highest rates that were measured",)


def _assumed(record: Record) -> list[str]:
    found = []
    if link_bandwidth(record) is None:
        found.append(f"link bandwidth: {LOOPBACK_SHARE} of memory bandwidth, until messages are timed")
    if record.machine.device != "cpu":
        found.append("accelerators in PCIe 4 slots, with peer access")
    if record.machine.nodes > 1 and _network(record) == "tcp-10":
        found.append("network: name it (network of docs/cluster.md)")
    return found
