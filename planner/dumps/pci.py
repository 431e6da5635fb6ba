"""PCI Express as a topology file states it: what kind of device, how fast a link, and which accelerator an id means."""

from __future__ import annotations

import re

from planner.quantities import BytesPerSecond

FIRST_CLASSES = {
    "0x03": "gpu",
    "0x12": "gpu",
    "0x02": "nic",
    "0x0604": "switch",
    "0x0680": "nvswitch",
    "0x0801": "switch",
}
"""How a PCI class begins -> kind of device (NVIDIA/nccl @5067397c, src/graph/topo.cc, and PCI's class codes)."""
ENCODING = {2.5: 0.8, 5.0: 0.8, 8.0: 128 / 130, 16.0: 128 / 130, 32.0: 128 / 130, 64.0: 242 / 256}
"""Gigatransfers per second and lane -> share that is payload: 8b/10b, 128b/130b, flits of 256 bytes."""
ACCELERATORS = {
    "10de:1db1": "v100-sxm2-16gb",
    "10de:1df5": "v100-sxm2-16gb",
    "10de:1db5": "v100-sxm2-32gb",
    "10de:1db6": "v100-pcie-32gb",
    "10de:1e04": "rtx-2080-ti",
    "10de:1e07": "rtx-2080-ti",
    "10de:1eb8": "t4",
    "10de:20b0": "a100-sxm-40gb",
    "10de:20b2": "a100-sxm-80gb",
    "10de:20b1": "a100-pcie-40gb",
    "10de:20f1": "a100-pcie-40gb",
    "10de:20b5": "a100-pcie-80gb",
    "10de:20b7": "a30",
    "10de:20f3": "a800-sxm-80gb",
    "10de:2203": "rtx-3090-ti",
    "10de:2204": "rtx-3090",
    "10de:2230": "rtx-a6000",
    "10de:2235": "a40",
    "10de:2236": "a10",
    "10de:2237": "a10g",
    "10de:2324": "h800-sxm",
    "10de:2330": "h100-sxm",
    "10de:2331": "h100-pcie-80gb",
    "10de:2335": "h200-sxm",
    "10de:2342": "gh200-96gb",
    "10de:2348": "gh200-144gb",
    "10de:2684": "rtx-4090",
    "10de:26b1": "rtx-6000-ada",
    "10de:26b5": "l40",
    "10de:26b9": "l40s",
    "10de:2704": "rtx-4080",
    "10de:27b8": "l4",
    "10de:2901": "b200-sxm",
    "10de:2941": "gb200",
    "10de:3182": "b300-sxm",
    "1002:7408": "mi250x",
    "1002:740c": "mi250x",
    "1002:740f": "mi210",
    "1002:74a1": "mi300x",
    "1002:74a5": "mi325x",
    "1002:75a0": "mi350x",
    "1002:75a3": "mi355x",
}
"""PCI vendor:device -> accelerator of the catalogue (pci.ids of Debian, 2023-04-11; later parts from
NVIDIA/gpu-admin-tools, gpu/devid_names.py, and from public listings of lspci). Ids of several products are left out."""


def kind_of(pci_class: str) -> str:
    """Kind of device of a class such as 0x030200; "other" for what a topology has no use for.

    >>> kind_of("0x030200"), kind_of("0x020700"), kind_of("0x060400"), kind_of("")
    ('gpu', 'nic', 'switch', 'other')
    """
    return next((kind for start, kind in FIRST_CLASSES.items() if pci_class.lower().startswith(start)), "other")


def transfer_rate(text: str) -> float | None:
    """Transfers per second and lane of "16.0 GT/s PCI Express", or None.

    >>> transfer_rate("16.0 GT/s PCI Express"), transfer_rate("8 GT/s"), transfer_rate("")
    (16000000000.0, 8000000000.0, None)
    """
    found = re.match(r"(\d{1,3}(?:\.\d)?)\s*GT/s", text.strip(), re.ASCII)
    return float(found[1]) * 1e9 if found and float(found[1]) in ENCODING else None


def lanes_bandwidth(rate: float | None, width: int | None) -> BytesPerSecond | None:
    """One direction of `width` lanes, after encoding; None where either is not known.

    >>> round(lanes_bandwidth(16e9, 16) / 1e9, 1), lanes_bandwidth(None, 16)
    (31.5, None)
    """
    if not rate or not width:
        return None
    return rate * width * ENCODING[rate / 1e9] / 8


def lanes(text: str) -> int | None:
    """Lanes of a `link_width`, or None for what is none (0, 255, blank)."""
    found = re.fullmatch(r"x?(\d{1,2})", text.strip(), re.ASCII)
    return int(found[1]) or None if found and int(found[1]) <= 32 else None
