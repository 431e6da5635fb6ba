"""What looks wrong with a host's network: ports, how near NICs are to accelerators, what NCCL made of them."""

from __future__ import annotations

from collections.abc import Iterator

from planner.dumps import host as hosts
from planner.dumps.host import span
from planner.dumps.records import Dump, Finding, HostTopology, PortStatus

SOFTWARE = ("rxe", "siw")
"""How devices that do RDMA in software are called."""


def _ports(dump: Dump) -> Iterator[Finding]:
    for port in dump.ports:
        name = port.device if port.port is None else f"{port.device} port {port.port}"
        if port.transport == "iwarp":
            continue
        if port.device.startswith(SOFTWARE):
            yield Finding(
                f"{name} is RDMA in software",
                "its data goes through the CPU",
                "ibv_devices; ibdev2netdev",
                kind="software_rdma",
            )
        elif port.state and port.state != "active":
            yield _not_active(port, name)
    yield from _slow_ports(dump.ports)


def _not_active(port: PortStatus, name: str) -> Finding:
    if port.state in ("initializing", "init") and port.layer != "ethernet":
        why = "the cable works, but no subnet manager has set the port up"
        return Finding(f"{name} is {port.state}", why, "sminfo; systemctl status opensm", kind="port")
    if port.physical and port.physical != "linkup":
        why = f"the link itself is {port.physical}: cable, transceiver or switch port"
    else:
        why = "NCCL leaves the port out or fails on it"
    ethernet = f"ibdev2netdev | grep {port.device}; ip link show, then ethtool of that interface"
    return Finding(
        f"{name} is {port.state}",
        why,
        ethernet if port.layer == "ethernet" else f"ibstat {port.device}; iblinkinfo",
        kind="port",
    )


def _slow_ports(ports: tuple[PortStatus, ...]) -> Iterator[Finding]:
    """Ports that are slower than their like; adapters for management have a layer of their own as a rule."""
    for layer in sorted({port.layer for port in ports}):
        alive = [port for port in ports if port.layer == layer and port.speed and port.state in ("", "active")]
        best = max((port.speed or 0.0 for port in alive), default=0.0)
        slow = [port for port in alive if (port.speed or 0.0) < 0.95 * best and not port.device.startswith(SOFTWARE)]
        usual = len(alive) - len(slow) >= len(slow)
        for port in slow if usual else ():
            yield Finding(
                f"{port.device} runs at {_gigabits(port.speed)}, others at {_gigabits(best)}",
                "a port that trained at a lower rate holds all of a job back, unless it is another kind of adapter",
                f"mlxlink -d {port.device} -m; ibstat {port.device}",
                kind="port_rate",
            )


def _gigabits(speed: float | None) -> str:
    return f"{(speed or 0.0) * 8e-9:g} Gb/s"


def _gids(dump: Dump) -> Iterator[Finding]:
    """Ports of RoCE without an address that routes: RoCE v2 over IPv4."""
    ports = dict.fromkeys((gid.device, gid.port) for gid in dump.gids)
    good = {(gid.device, gid.port) for gid in dump.gids if gid.version == "v2" and gid.ipv4}
    for device, port in ports:
        if (device, port) not in good:
            yield Finding(
                f"{device} port {port} has no RoCE v2 address over IPv4",
                "its link-local addresses work within one switch at most; the interface lacks an IP address",
                "ip addr; show_gids",
                kind="gid",
            )


def _nccl(dump: Dump) -> Iterator[Finding]:
    nccl = dump.nccl
    if nccl is None:
        return
    if nccl.network.lower() == "socket" or any(way.startswith("NET/Socket") for way in nccl.transports):
        yield Finding(
            "NCCL sends over TCP sockets",
            "no RDMA adapter or plugin was found or allowed, and sockets reach a fraction of the network's rate",
            "ibv_devinfo; env | grep NCCL_ # NCCL_IB_DISABLE, NCCL_IB_HCA, NCCL_NET",
            kind="sockets",
        )
    if nccl.settings.get("NCCL_IB_DISABLE", "0") != "0":
        yield Finding(
            f"NCCL_IB_DISABLE is {nccl.settings['NCCL_IB_DISABLE']}",
            "it switches RoCE off as well as InfiniBand",
            "unset NCCL_IB_DISABLE",
            kind="ib_disable",
        )
    off = sorted(name for name, works in nccl.gpu_direct.items() if not works and "+" not in name)
    if off:
        yield Finding(
            f"GPUDirect RDMA is off for {', '.join(off[:8])}",
            "data between GPU and NIC is copied through host memory",
            "lsmod | grep -e nvidia_peermem -e nv_peer_mem; dmesg | grep -i peermem",
            kind="gpu_direct",
        )


def _far_nics(dump: Dump) -> Iterator[Finding]:
    """Accelerators whose nearest NIC is too far for GPUDirect RDMA, which NCCL uses up to a PCIe switch (PXB)."""
    topology = dump.topology
    if topology is None or not topology.nic_pairs:
        return
    if all(nic.gpu_direct is False for nic in topology.nics):
        yield _no_gpu_direct(topology)
        return
    by_kind: dict[str, list[int]] = {}
    for gpu in range(len(topology.gpus)):
        kind, _ = hosts.nearest_nics(topology, gpu)
        by_kind.setdefault(kind, []).append(topology.gpus[gpu].index)
    for kind, why in FAR.items():
        if gpus := by_kind.get(kind):
            yield Finding(
                f"GPU{'s' if len(gpus) > 1 else ''} {span(gpus)}: no NIC nearer than {kind}",
                why,
                "lspci -tv; NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET all_reduce_perf -b 8M -e 64M | grep -i gdr",
                kind="far_nic",
            )


def _no_gpu_direct(topology: HostTopology) -> Finding:
    names = ", ".join(nic.name for nic in topology.nics[:8])
    return Finding(
        f"no GPUDirect RDMA with {names}",
        "adapter or driver cannot read and write GPU memory (gdr=0 in the dump): data is copied through the host",
        "lsmod | grep -e nvidia_peermem -e nv_peer_mem; ibv_devinfo",
        kind="gpu_direct",
    )


FAR = {
    "SYS": "data crosses the link between CPU sockets (NUMA nodes), and NCCL does not use GPUDirect RDMA that far "
    "(NCCL_NET_GDR_LEVEL); with PXN it goes through a GPU that is next to a NIC",
    "NODE": "data goes through the CPU's root complexes, and NCCL does not use GPUDirect RDMA that far "
    "(NCCL_NET_GDR_LEVEL)",
    "PHB": "data goes through the CPU's root complex, and NCCL does not use GPUDirect RDMA that far unless "
    "NCCL_NET_GDR_LEVEL=PHB says so",
}
"""Kind -> why a NIC that far is a loss (NVIDIA/nccl @5067397c, src/graph/paths.cc: the level is PXB by default)."""


NETWORK_CHECKS = (_ports, _gids, _nccl, _far_nics)
