"""What the tools of RDMA adapters print: ibstat, ibv_devinfo and show_gids."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from planner.dumps.records import Gid, PortStatus
from planner.dumps.text import figure, lines, whole_number
from planner.errors import FileFormatError

MOST_PORTS, MOST_GIDS = 1024, 20_000
_DEVICE = re.compile(r"\bCA '([\w.:-]{1,64})'|\bhca_id:\s*([\w.:-]{1,64})", re.ASCII)
_PORT = re.compile(r"\bPort (\d{1,3}):\s*$|\bport:\s+(\d{1,3})\b", re.ASCII)
_FIELD = re.compile(
    r"\b(CA type|State|state|Physical state|Rate|Link layer|link_layer|transport|active_mtu|active_width|active_speed"
    r"|board_id):\s*(.*)"
)
_GID = re.compile(r"(?:[0-9a-fA-F]{4}:){7}[0-9a-fA-F]{4}", re.ASCII)
_IPV4 = re.compile(r"(?:\d{1,3}\.){3}\d{1,3}", re.ASCII)


def _state(text: str) -> str:
    """Lower case, without the number and the prefix of verbs: PORT_ACTIVE (4) is "active"."""
    return text.partition("(")[0].strip().lower().removeprefix("port_")


def _speed(text: str) -> float | None:
    gigabits = figure(text.partition(" ")[0])
    return gigabits * 1e9 / 8 if gigabits else None


def _lower(text: str) -> str:
    return text.partition("(")[0].strip().lower()


READERS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "State": ("state", _state),
    "state": ("state", _state),
    "Physical state": ("physical", _lower),
    "Rate": ("speed", _speed),
    "Link layer": ("layer", _lower),
    "link_layer": ("layer", _lower),
    "transport": ("transport", _lower),
    "CA type": ("adapter", str),
    "board_id": ("adapter", str),
    "active_width": ("width", lambda text: whole_number(text.partition("X")[0])),
    "active_speed": ("lane", _speed),
    "active_mtu": ("mtu", lambda text: whole_number(text.partition(" ")[0])),
}
"""What a tool calls a field -> ours, and how it is read."""
OF_DEVICE = ("transport", "adapter")
"""Fields that stand above the ports and hold for all of them."""


def read_ports(text: str) -> tuple[PortStatus, ...]:
    """Every port of ibstat or ibv_devinfo; an adapter whose ports are not listed is one with no state.

    Raises FileFormatError where no adapter is listed.
    """
    found: list[dict[str, Any]] = []
    for number, line in lines(text):
        _read_line(line, found)
        if len(found) > MOST_PORTS:
            raise FileFormatError(f"line {number}: more than {MOST_PORTS} ports of network adapters")
    ports = tuple(_port(fields) for fields in found)
    if not ports:
        raise FileFormatError("ibstat or ibv_devinfo: no adapter (CA 'mlx5_0', hca_id: mlx5_0) was found")
    return tuple(dict.fromkeys(ports))


def _port(fields: dict[str, Any]) -> PortStatus:
    """A port; ibv_devinfo -v states lanes and the rate of one, ibstat their product."""
    width, lane = fields.pop("width", None), fields.pop("lane", None)
    fields.setdefault("speed", width * lane if width and lane else None)
    return PortStatus(**fields)


def _read_line(line: str, found: list[dict[str, Any]]) -> None:
    if device := _DEVICE.search(line):
        found.append({"device": device[1] or device[2], "port": None})
    elif not found:
        return
    elif port := _PORT.search(line):
        _open_port(found, int(port[1] or port[2]))
    elif field := _FIELD.search(line):
        name, read = READERS[field[1]]
        found[-1].setdefault(name, read(field[2][:80].strip()))


def _open_port(found: list[dict[str, Any]], number: int) -> None:
    """The first port completes its adapter's entry, others get one of their own."""
    if found[-1]["port"] is None:
        found[-1]["port"] = number
        return
    shared = {key: found[-1][key] for key in OF_DEVICE if key in found[-1]}
    found.append({"device": found[-1]["device"], "port": number} | shared)


def read_gids(text: str) -> tuple[Gid, ...]:
    """Every row of show_gids. Raises FileFormatError where there is none."""
    gids = tuple(gid for _, line in lines(text) if (gid := _gid(line.split(maxsplit=20))))
    if not gids or len(gids) > MOST_GIDS:
        raise FileFormatError(
            f"show_gids: {len(gids) or 'no'} rows; expected are rows such as "
            "'mlx5_0 1 3 0000:0000:0000:0000:0000:ffff:0a00:0002 10.0.0.2 v2 eth1'"
        )
    return gids


def _gid(words: list[str]) -> Gid | None:
    """A row of show_gids: device, port, index, address, IPv4 address if any, version, interface."""
    place = next((i for i, word in enumerate(words) if i >= 3 and _GID.fullmatch(word)), None)
    if place is None:
        return None
    port, index = whole_number(words[place - 2]), whole_number(words[place - 1])
    rest = words[place + 1 :]
    ipv4 = rest.pop(0) if rest and _IPV4.fullmatch(rest[0]) else ""
    if port is None or index is None or not rest or rest[0] not in ("v1", "v2"):
        return None
    return Gid(words[place - 3][:64], port, index, words[place].lower(), ipv4, rest[0], "".join(rest[1:2])[:32])
