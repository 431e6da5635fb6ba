"""The links that a row of a table of collectives means: from its words, also in spellings not seen yet."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from planner.catalogue.collectives import limited_bandwidth
from planner.catalogue.hardware import accelerator, node, standard_node
from planner.errors import SpecError
from planner.quantities import BytesPerSecond, to_base
from planner.spec.accelerator import Accelerator
from planner.spec.cluster import Node, Wiring
from planner.topology.rings import ring_bandwidth
from planner.validate.collectives_columns import EMPTY

FABRICS = (
    ("infiniband", r"\bib ?/ ?roce"),
    ("tcpxo", r"tcpxo|fastrak"),
    ("tcpx", r"tcpx"),
    ("ethernet", r"ipoib|socket|\btcp\b|ib_disable=1|\bgloo\b"),
    ("efa", r"\befa|elastic fabric|\bsrd\b"),
    ("slingshot", r"slingshot|\bcxi\b|cassini|\bss-?11\b"),
    ("omnipath", r"omni-?path|\bopa\b"),
    ("roce", r"roce|spectrum-?x|converged ethernet|\brdma\b.*(ethernet|gbe)|(ethernet|gbe)\b.*\brdma\b"),
    ("infiniband", r"infini-?band|\bib\b|[ehnx]dr(\d|\b)|quantum"),
    ("roce", r"rdma|\bnics?\b|connectx|\bcx-?\d|bluefield"),
    ("ethernet", r"ethernet|gbe\b|\b\d+ ?ge\b|\beth\d|gvnic|\bena\b"),
)
"""Kind of fabric -> what its description says, the first that is found."""
NO_FABRIC = (*EMPTY, "single node", "0", "no")
ANY_FABRIC = "roce"
"""Stands for a fabric whose description says nothing known: between the fast and the slow."""
RATES = {"edr": 100.0, "hdr100": 100.0, "hdr": 200.0, "ndr200": 200.0, "ndr": 400.0, "xdr": 800.0}
"""Gb/s of one port by the word for its rate."""
GPU_CLASSES = (
    (r"volta|v100|titan v\b", "V100"),
    (r"ampere|a100|a800", "A100"),
    (r"gh200", "GH200"),
    (r"hopper|h\d00|h20\b", "H100"),
    (r"gb[23]00", "GB200"),
    (r"blackwell|b[23]00", "B200"),
    (r"mi3\d\d|cdna3", "MI300X"),
    (r"mi2\d\d", "MI250X"),
)
"""What stands for a part that the catalogue does not know by name."""
LINK_CLASSES = (
    (r"nvlink[- ]?2|nv[- ]?link 2", "V100"),
    (r"nvlink[- ]?3", "A100"),
    (r"nvlink[- ]?4", "H100"),
    (r"nvlink[- ]?5", "B200"),
    (r"nvl72|nvl36", "GB200"),
    (r"xgmi|infinity", "MI300X"),
    (r"pcie?[- ]?(gen)?[- ]?3", "RTX 2080 Ti"),
    (r"pcie?[- ]?(gen)?[- ]?5", "RTX PRO 6000"),
    (r"nvlink|nvswitch", "A100"),
)
"""As `GPU_CLASSES`, by the links inside the node."""
ANY_GPU = "L40S"
BRIDGE_WORDS, HOST_WORDS = r"bridge|\bnvl\b", r"no p2p|without p2p|p2p (off|disabled|blocked)|shm|no peer|host"
RACK = 72
"""Ranks that one switch domain of an NVL72 rack joins."""


@dataclass(frozen=True)
class Machine:
    """Nominal links of a run: `local` ranks of each of `domains` domains, bandwidths one rank's, one direction.

    `link` and `fabric` are kinds of `catalogue/collectives.toml`. `guessed` says what was not stated, "" where all was.
    """

    link: str
    fabric: str
    local: float
    domains: int
    local_bandwidth: BytesPerSecond
    remote_bandwidth: BytesPerSecond
    reduces: bool
    guessed: str

    @property
    def name(self) -> str:
        """What the table of classes calls it: the links inside one domain, or the fabric between and what it joins."""
        return f"{self.fabric} between {self.link}" if self.domains > 1 else f"one domain of {self.link}"


@lru_cache(maxsize=4096)
def machine(*, gpu: str, intra: str, inter: str, nic_gbps_per_node: float, n_ranks: int, n_nodes: int) -> Machine:
    """The links that the columns of a row mean.

    What the words do not say is that of the nearest known part: the accelerator's standard node, one NIC for each of
    its accelerators at the usual rate of its generation.
    """
    words, guesses = intra.lower(), []
    part, known = _part(gpu, words)
    if not known:
        guesses.append(f"links as those of {part.name}")
    standard = node(standard_node(part.name) or "pcie-8x-rtx-4090")
    link, bandwidth, wiring = _link(words, standard, part)
    domains = _domains(words, standard, n_ranks, n_nodes)
    local = n_ranks / domains
    fabric, fabric_known = _fabric(inter.lower(), standard)
    node_rate, rate_known = _rate(inter.lower(), nic_gbps_per_node, standard)
    if domains > 1 and not (fabric_known and rate_known):
        guesses.append(f"network {fabric} at {node_rate / 1e9:.0f} GB/s per node")
    # A rank sends through its own slot and the NICs beside it, however many the node has: 4 x 400 Gb/s gave a single
    # GPU of each of two nodes 41 to 50 GB/s (nccl-tests issue 232).
    beside = max(node_rate / standard.gpus_per_node, standard.fabric.nic_bandwidth) or node_rate
    share = min(limited_bandwidth(fabric, node_rate) * n_nodes / n_ranks, part.pcie_bandwidth, beside)
    return Machine(
        link=link,
        fabric=fabric if domains > 1 else "none",
        local=local,
        domains=domains,
        local_bandwidth=_used(bandwidth, wiring, standard, local) if local > 1 else float("inf"),
        remote_bandwidth=share if domains > 1 else float("inf"),
        reduces=standard.in_network_reduction and wiring is Wiring.SWITCH,
        guessed="; ".join(guesses),
    )


def _part(gpu: str, intra: str) -> tuple[Accelerator, bool]:
    """The accelerator, and whether it is the one that is named."""
    for words in _shorter(gpu):
        try:
            return accelerator(words), True
        except SpecError:
            continue
    text = gpu.lower()
    for patterns, where in ((GPU_CLASSES, text), (LINK_CLASSES, intra)):
        found = next((name for pattern, name in patterns if re.search(pattern, where)), "")
        if found:
            return accelerator(found), False
    return accelerator(ANY_GPU), False


def _shorter(gpu: str) -> list[str]:
    """The name, and its beginnings word by word: "A100-SXM4-48GB" is an A100 whatever follows."""
    words = [word for word in re.split(r"[\s,;/(]+|-(?=[a-z(])|(?<=\d)-", gpu.strip(), flags=re.IGNORECASE) if word]
    return [gpu, *(" ".join(words[:count]) for count in range(len(words), 0, -1))] if words else []


def _link(intra: str, standard: Node, part: Accelerator) -> tuple[str, BytesPerSecond, Wiring]:
    """Kind, bandwidth and wiring of the links inside a node, as the words correct the part's standard node."""
    pcie = _pcie(part)
    if re.search(r"pci-?e", intra) and not re.search(r"nvlink|nvswitch|xgmi", intra):
        host = re.search(HOST_WORDS, intra) or standard.wiring is Wiring.HOST
        return f"{pcie}-host" if host else pcie, part.pcie_bandwidth, Wiring.HOST if host else Wiring.PCIE
    if standard.link.startswith("pcie") and re.search(r"nvlink|nvswitch", intra):
        generation = {"pcie3": "nvlink2", "pcie4": "nvlink3", "pcie5": "nvlink4"}[pcie]
        return f"{generation}-bridge", 300e9 if pcie != "pcie3" else 50e9, Wiring.SWITCH
    if standard.wiring is Wiring.HOST:
        return f"{standard.link}-host", standard.link_bandwidth, Wiring.HOST
    wiring = Wiring.SWITCH if "switch" in intra else standard.wiring
    wiring = Wiring.MESH if "mesh" in intra and "switch" not in intra else wiring
    return standard.link, standard.link_bandwidth, wiring


def _pcie(part: Accelerator) -> str:
    return "pcie3" if part.pcie_bandwidth < 20e9 else "pcie4" if part.pcie_bandwidth < 40e9 else "pcie5"


def _used(bandwidth: BytesPerSecond, wiring: Wiring, standard: Node, local: float) -> BytesPerSecond:
    """What one rank's links to the other ranks come to: in a mesh, those to ranks that take part only."""
    if wiring is not Wiring.MESH or local >= standard.gpus_per_node:
        return bandwidth
    if standard.link_pairs:
        return _rings(standard, int(local)) or bandwidth
    size = 4 if bandwidth >= 300e9 and standard.link != "xgmi" else standard.gpus_per_node
    return bandwidth * min((local - 1) / (size - 1), 1.0)


def _rings(mesh: Node, ranks: int) -> BytesPerSecond:
    """The best set of rings over the first accelerators of a mesh; 0 where their links make none."""
    rate = [[mesh.link_pairs.get((min(i, j), max(i, j)), 0.0) for j in range(ranks)] for i in range(ranks)]
    return ring_bandwidth(tuple(map(tuple, rate))) if ranks > 1 else 0.0


def _domains(intra: str, standard: Node, n_ranks: int, n_nodes: int) -> int:
    """Link domains that the ranks are spread over: nodes, or racks that one switch joins."""
    if standard.domain_nodes > 1 or "nvl72" in intra:
        return max(-(-n_ranks // RACK), 1)
    return n_nodes


def _fabric(inter: str, standard: Node) -> tuple[str, bool]:
    """Kind of fabric, and whether it is stated."""
    for kind, pattern in FABRICS:
        if re.search(pattern, inter):
            return kind, True
    if inter.strip() in NO_FABRIC and standard.fabric.kind not in ("none", "ethernet"):
        return standard.fabric.kind, False
    return ANY_FABRIC, False


def _rate(inter: str, gbps: float, standard: Node) -> tuple[BytesPerSecond, bool]:
    """Bandwidth of all NICs of a node together, and whether it is stated."""
    if gbps:
        return to_base(gbps, "Gb/s"), True
    product = re.search(r"(\d+) ?x ?(\d{2,3})\b", inter)
    if product:
        return to_base(float(product[1]) * float(product[2]), "Gb/s"), True
    single = re.search(r"\b(\d{1,3}) ?(g|gb|gbe|gbit|gb/s|gbps)\b", inter)
    if single:
        return to_base(float(single[1]), "Gb/s"), True
    word = next((rate for name, rate in RATES.items() if name in inter), 0.0)
    if word:
        return to_base(word * max(standard.gpus_per_node, 1), "Gb/s"), False
    own = standard.fabric.node_bandwidth
    return own or to_base(100.0, "Gb/s"), False
