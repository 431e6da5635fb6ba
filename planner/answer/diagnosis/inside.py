"""Causes inside a node: peer access, links that are down, switches that do not reduce, and what topology dumps show."""

from __future__ import annotations

from collections.abc import Iterator

from planner.answer.diagnosis.commands import nccl_tests
from planner.answer.diagnosis.records import Case, Cause, Strength
from planner.answer.diagnosis.tables import TableCheck, bandwidth_words
from planner.quantities import format_bandwidth

PEER_ACCESS = (
    "GeForce cards have no peer access over PCIe: an NVLink bridge where the card takes one, else few and large "
    "messages (DDP with gradient accumulation, no tensor parallelism). Other cards: unset NCCL_P2P_DISABLE, switch "
    "IOMMU and ACS off, try NCCL_P2P_LEVEL=SYS"
)
SHOW_PEERS = "nvidia-smi topo -p2p r; nvidia-smi topo -m"
HOST = {"intra": "PCIe without P2P"}
SLOTS = {"intra": "PCIe"}


def no_peer_access(case: Case) -> Iterator[Cause]:
    """Bytes between GPUs of a node that pass through host memory."""
    shown = _shown(case)
    for check in case.checks:
        if check.across:
            continue
        by_design = check.machine.link.endswith("-host")
        if by_design:
            evidence = f"{bandwidth_words(check)}, whose bytes all pass through host memory"
            yield Cause("no peer access", evidence, PEER_ACCESS, SHOW_PEERS, Strength.SHOWN, limit=True, gain=0.5)
            return
        if check.slow and (shown or _like_host(check)):
            busbw, _ = check.would_be(**HOST)
            evidence = (
                f"{shown or bandwidth_words(check)}; without peer access about {format_bandwidth(busbw)} come through"
            )
            strength = Strength.SHOWN if shown else Strength.LIKELY
            yield Cause("no peer access", evidence, PEER_ACCESS, SHOW_PEERS, strength, gain=0.9)
            return
    if shown:
        yield Cause("no peer access", shown, PEER_ACCESS, SHOW_PEERS, Strength.SHOWN, limit=True, gain=0.5)


def _shown(case: Case) -> str:
    """What a file says of peer access; empty where nothing does."""
    for file, log in case.nccl:
        if log.settings.get("NCCL_P2P_DISABLE", "0") not in ("0", ""):
            return f"{file.path}: NCCL_P2P_DISABLE={log.settings['NCCL_P2P_DISABLE']}"
        if log.transports.get("SHM") and not any(way.startswith("P2P") for way in log.transports):
            return f"{file.path}: NCCL sends between GPUs of a node via SHM (host memory), never via P2P"
    for file, sign in case.signs("peer_access"):
        return f"{file.path}, line {sign.line}: {sign.text}"
    return ""


def _like_host(check: TableCheck) -> bool:
    busbw, _ = check.would_be(**HOST)
    return check.is_like(**HOST) or check.comparison.measured * 1e9 < busbw


def links_inside(case: Case) -> Iterator[Cause]:
    """Links of their own that GPUs have and do not use, or not all of them."""
    for check in case.checks:
        if check.across or not check.slow or check.machine.link.startswith("pcie"):
            continue
        words, show = (
            bandwidth_words(check),
            "nvidia-smi nvlink -s; nvidia-smi topo -m; dmesg | grep -i -e xid -e nvlink",
        )
        if check.is_like(**SLOTS):
            yield Cause(
                "PCIe instead of NVLink",
                f"{words}; PCIe would give {format_bandwidth(check.would_be(**SLOTS)[0])}",
                "start nvidia-fabricmanager, pass all GPUs to the container or virtual machine, unset NCCL_P2P_LEVEL",
                show,
                Strength.LIKELY,
                gain=0.8,
            )
            return
        setting = "bring inactive links back (reset of the GPU, reseating, nvidia-fabricmanager)"
        if check.stated[0].name == "all_reduce" and check.machine.reduces and _ring_bound(check):
            setting = f"unset NCCL_NVLS_ENABLE=0 and NCCL_ALGO (the switch could reduce, NVLS); else {setting}"
        yield Cause("links inside the node", words, setting, show, Strength.LIKELY, gain=0.4)
        return


def _ring_bound(check: TableCheck) -> bool:
    """Whether a ring's bandwidth explains what was measured where a reducing switch was expected."""
    nominal = check.machine.local_bandwidth
    return 0.7 * nominal < check.comparison.measured * 1e9 < nominal


CAUSES_OF_FINDINGS = {
    "sockets": (
        "TCP fallback",
        "unset NCCL_IB_DISABLE, name the adapters in NCCL_IB_HCA, or load the network's plugin",
    ),
    "ib_disable": ("TCP fallback", "unset NCCL_IB_DISABLE: 1 switches RoCE off as well as InfiniBand"),
    "gpu_direct": ("no GPUDirect", "load nvidia_peermem, or a kernel and driver with DMA-BUF"),
    "far_nic": (
        "no GPUDirect",
        "use the adapters next to each GPU (NCCL_IB_HCA); NCCL_NET_GDR_LEVEL=PHB or SYS allows longer ways",
    ),
    "gid": (
        "wrong GID or HCA",
        "give the interface an IP address; then NCCL_IB_GID_INDEX of its RoCE v2 line (NCCL before 2.21)",
    ),
    "port": ("port down", "bring the port up, or leave it out with NCCL_IB_HCA=^name"),
    "port_rate": (
        "port below its rate",
        "reseat or replace cable and transceiver; leave the port out with NCCL_IB_HCA=^name",
    ),
    "software_rdma": ("RDMA in software", "use the adapter's own driver, and name it in NCCL_IB_HCA"),
    "links": ("links inside the node", "bring inactive links back (reset of the GPU, reseating, nvidia-fabricmanager)"),
    "link_rate": ("links inside the node", "reset the GPU; a link that trains low again is broken"),
    "pcie": ("slow PCIe slot", "reseat card and riser; set the slot's generation and width in the BIOS"),
    "peer_access": ("no peer access", PEER_ACCESS),
    "results": ("wrong results", "take the GPU out of service until its diagnosis passes"),
}
"""Kind of a finding of `planner topo check` -> the cause that it is, and what to set."""
UNNECESSARY_INSIDE = ("sockets", "ib_disable", "gpu_direct", "far_nic", "gid", "port", "port_rate", "software_rdma")
"""Findings of the network between nodes: no matter to a job on one node."""


def findings(case: Case) -> Iterator[Cause]:
    """What looks wrong in dumps of a machine."""
    alone = _one_node(case)
    for host in case.hosts:
        for each in host.findings:
            if each.kind in UNNECESSARY_INSIDE and (alone or (each.kind in ("sockets", "ib_disable") and case.nccl)):
                continue
            cause, setting = CAUSES_OF_FINDINGS[each.kind]
            evidence = f"{host.dump.path}: {each.what} ({each.why})"
            yield Cause(cause, evidence, setting, each.command, Strength.SHOWN, limit=True, gain=0.2)


def _one_node(case: Case) -> bool:
    """Whether a run or a table is judged, and was on one node; a log of NCCL alone does not tell where a job runs."""
    return bool(case.plan or case.checks) and not case.across


def small_messages(case: Case) -> Iterator[Cause]:
    """Short messages that take much longer than they should while long ones are as expected."""
    for check in case.checks:
        found = check.small_messages()
        if not check.slow and found is not None:
            yield Cause(
                "slow small messages",
                f"{check.where()}: {found}",
                "pin processes to the cores of their socket (NCCL_IGNORE_CPU_AFFINITY=0, numactl), switch the "
                "processor's power saving off, leave NCCL_PROTO and NCCL_ALGO unset",
                nccl_tests(case).replace("-b 8M -e 8G", "-b 8 -e 1M"),
                Strength.POSSIBLE,
                limit=True,
                gain=0.1,
            )
            return


RULES = (no_peer_access, links_inside, findings, small_messages)
