"""A file of any format, or of several, as one record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from planner.dumps import recognise as formats
from planner.dumps.ib_devices import read_gids, read_ports
from planner.dumps.nccl_graph import read_nccl_log
from planner.dumps.nccl_system import read_nccl_system
from planner.dumps.nccl_tests import read_nccl_tests
from planner.dumps.nccl_xml import read_nccl_xml
from planner.dumps.nvlink_status import read_nvlink_status
from planner.dumps.records import Dump, HostTopology, Nic, PortStatus
from planner.dumps.smi_topo import read_smi_topo
from planner.dumps.text import read_text
from planner.errors import FileFormatError, SpecError

Readers = dict[str, tuple[str, Callable[[str], Any]]]


def read_dump(path: Path) -> Dump:
    """Everything that a file holds. Raises FileFormatError, naming the file and the line, where nothing can be read."""
    return dump_of(read_text(path), path=str(path))


def dump_of(text: str, *, path: str = "") -> Dump:
    """Everything that a text holds; formats that only seem to be there are left out if another one can be read.

    Raises FileFormatError.
    """
    found = formats.recognise(text)
    if not found:
        empty = not text.strip()
        said = "is empty" if empty else f"is of no known format; known: {formats.known_formats()}"
        raise FileFormatError(said, where=path)
    values, failed = _values(found, text, Path(path).stem)
    if not values:
        raise FileFormatError(str(failed[0]), where=path) from failed[0]
    made = Dump(path, tuple(name for name in found if name in values), notes=tuple(map(str, failed)))
    return _completed(replace(made, **_fields(values)), text)


def _readers(stem: str) -> Readers:
    return {
        formats.SMI_TOPO: ("topology", read_smi_topo),
        formats.NCCL_XML: ("topology", read_nccl_xml),
        formats.NVLINK_STATUS: ("link_status", read_nvlink_status),
        formats.PORTS: ("ports", read_ports),
        formats.GIDS: ("gids", read_gids),
        formats.NCCL_INFO: ("nccl", read_nccl_log),
        formats.NCCL_TESTS: ("tables", lambda text: read_nccl_tests(text, name=stem)),
    }


def _values(found: tuple[str, ...], text: str, stem: str) -> tuple[dict[str, Any], list[SpecError]]:
    """Format -> what was read, and the formats' errors."""
    values, failed = {}, []
    for name in found:
        try:
            values[name] = _readers(stem)[name][1](text)
        except SpecError as error:
            failed.append(error)
    return values, failed


def _fields(values: dict[str, Any]) -> dict[str, Any]:
    """Field of the record -> value; of two formats of topologies the first is taken."""
    fields: dict[str, Any] = {}
    for name, value in values.items():
        fields.setdefault(_readers("")[name][0], value)
    if "topology" in fields:
        first, *others = fields["topology"]
        fields |= {"topology": first, "further": tuple(others)}
    return fields


def _completed(dump: Dump, text: str) -> Dump:
    """What the parts of a file say of each other: names of accelerators, rates of ports."""
    topology = dump.topology
    if topology is None and dump.nccl is not None:
        topology = read_nccl_system(text)
    return replace(dump, topology=joined(topology, dump) if topology else None)


def joined(topology: HostTopology, dump: Dump) -> HostTopology:
    """A topology with what a dump of the same host adds: names and links of accelerators, rates and states of NICs."""
    links = {status.index: status for status in dump.link_status}
    gpus = tuple(
        replace(gpu, name=links[gpu.index].name, links=links[gpu.index].active) if gpu.index in links else gpu
        for gpu in topology.gpus
    )
    return replace(topology, gpus=gpus, nics=tuple(_nic(nic, dump) for nic in topology.nics))


def _nic(nic: Nic, dump: Dump) -> Nic:
    port = next((port for port in dump.ports if port.device == nic.name), None)
    direct = dump.nccl.gpu_direct.get(nic.name) if dump.nccl else None
    nic = replace(nic, gpu_direct=direct if direct is not None else nic.gpu_direct)
    return _with_port(nic, port) if port else nic


def _with_port(nic: Nic, port: PortStatus) -> Nic:
    layer = port.layer if port.layer in ("infiniband", "ethernet") else nic.layer
    return replace(nic, speed=port.speed or nic.speed, state=port.state, layer=layer)


def merged(dumps: list[Dump]) -> list[Dump]:
    """Dumps of one host as one, where no two of them are of the same kind; else as they are, each a host of its own."""
    kinds = ("topology", "link_status", "ports", "gids", "nccl", "tables")
    if len(dumps) < 2 or any(sum(bool(getattr(dump, kind)) for dump in dumps) > 1 for kind in kinds):
        return dumps
    fields = {kind: next((value for dump in dumps if (value := getattr(dump, kind))), _NOTHING[kind]) for kind in kinds}
    whole = Dump(
        ", ".join(dump.path for dump in dumps),
        tuple(name for dump in dumps for name in dump.formats),
        **fields,
        further=next((dump.further for dump in dumps if dump.further), ()),
        notes=tuple(note for dump in dumps for note in dump.notes),
    )
    return [replace(whole, topology=joined(whole.topology, whole) if whole.topology else None)]


_NOTHING: dict[str, Any] = {
    "topology": None,
    "link_status": (),
    "ports": (),
    "gids": (),
    "nccl": None,
    "tables": (),
}
