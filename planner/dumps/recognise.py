"""Which formats a text holds: a person may have saved several commands into one file."""

from __future__ import annotations

import re

NCCL_TESTS = "nccl-tests"
NCCL_INFO = "NCCL INFO"
NCCL_XML = "NCCL topology XML"
SMI_TOPO = "nvidia-smi topo -m"
NVLINK_STATUS = "nvidia-smi nvlink -s"
PORTS = "ibstat or ibv_devinfo"
GIDS = "show_gids"
FORMATS = {
    SMI_TOPO: "the matrix of GPUs and NICs",
    NCCL_XML: "written by NCCL_TOPO_DUMP_FILE",
    NVLINK_STATUS: "the links of each GPU",
    PORTS: "the ports of network adapters",
    GIDS: "addresses of RDMA ports",
    NCCL_INFO: "a log with NCCL_DEBUG=INFO",
    NCCL_TESTS: "a log of nccl-tests or rccl-tests",
}
"""Every format that is read, and what it is."""
_WORDS = {
    SMI_TOPO: ("GPU",),
    NCCL_XML: ("<",),
    NVLINK_STATUS: ("GB/s", "all links are in"),
    PORTS: ("CA '", "hca_id:"),
    GIDS: ("INDEX",),
    NCCL_INFO: ("NCCL INFO",),
    NCCL_TESTS: ("busbw", "sum", "none", "prod", "min", "max", "avg"),
}
"""What a text of each format has in it: found much quicker than a pattern where it is missing."""
_MARKS = {
    SMI_TOPO: r"\bGPU\d{1,4}[ \t]+(?:X|NV\d|SYS|NODE|PHB|PXB|PIX|SOC|MX|XGMI|NS|OK)\b",
    NCCL_XML: r"\A\s{0,1000}<(?:\?xml|!DOCTYPE|!--|system|graphs|cpu|pci)|<system\b",
    NVLINK_STATUS: r"\bLink \d{1,3}: {0,8}(?:<inactive>|[\d.]{1,16} ?GB/s)|all links are in[aA]ctive",
    PORTS: r"\bCA '[\w.:-]{1,64}'|\bhca_id:",
    GIDS: r"\bDEV[ \t]{1,80}PORT[ \t]{1,80}INDEX[ \t]{1,80}GID\b",
    NCCL_INFO: r" NCCL INFO ",
    NCCL_TESTS: r"\balgbw[ \t]{1,80}busbw\b|\b(?:float|half|double|bfloat16|u?int(?:8|32|64))[ \t]{1,40}"
    r"(?:sum|none|prod|min|max|avg)\b",
}
_COMPILED = {name: re.compile(mark, re.ASCII) for name, mark in _MARKS.items()}


def recognise(text: str) -> tuple[str, ...]:
    r"""The formats that a text holds, none if it is something else.

    >>> recognise("GPU0  X  NV18\nGPU1  NV18  X"), recognise("model: llama")
    (('nvidia-smi topo -m',), ())
    """
    possible = (name for name, words in _WORDS.items() if any(word in text for word in words))
    return tuple(name for name in possible if _COMPILED[name].search(text))


def known_formats() -> str:
    """The formats that are read, in a sentence."""
    return "; ".join(f"{name} ({what})" for name, what in FORMATS.items())
