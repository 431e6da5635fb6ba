"""Causes in the network between nodes: sockets, adapters, addresses, GPUDirect, cables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from planner.answer.diagnosis.commands import nccl_tests, transports
from planner.answer.diagnosis.records import Case, Cause, Strength
from planner.answer.diagnosis.tables import TableCheck, bandwidth_words
from planner.quantities import counted, format_bandwidth

USE_RDMA = (
    "unset NCCL_IB_DISABLE (1 switches RoCE off as well as InfiniBand) and NCCL_NET; name the adapters in "
    "NCCL_IB_HCA=mlx5_0,...; in a container pass /dev/infiniband and allow locked memory; NCCL_NET=IB then fails "
    "instead of falling back"
)
PLUGINS = {
    "efa": "load the aws-ofi-nccl plugin and set FI_PROVIDER=efa; NCCL_NET='AWS Libfabric' then fails instead of "
    "falling back",
    "slingshot": "load the aws-ofi-nccl plugin built for cxi and set NCCL_NET='AWS Libfabric' (OFI): it then "
    "fails instead of falling back to sockets",
    "tcpxo": "start the FasTrak plugin (LD_LIBRARY_PATH of its container, NCCL_NET=FasTrak)",
    "tcpx": "start the TCPX plugin (LD_LIBRARY_PATH of its container, NCCL_NET=GPUDirectTCPX_v7)",
}
"""Kind of fabric that a plugin drives -> what to set."""
SOCKETS = {"inter": "TCP sockets"}


def tcp_fallback(case: Case) -> Iterator[Cause]:
    """NCCL on sockets where there is RDMA, by its log, by its settings or by the bandwidth."""
    setting = _use_rdma(case)
    said = _sockets_said(case)
    if said:
        slow = next((check for check in case.checks if check.across and check.slow), None)
        words = f"; {bandwidth_words(slow)}" if slow else ""
        yield Cause("TCP fallback", said + words, setting, transports(case), Strength.SHOWN, gain=1.0)
        return
    for check in case.checks:
        if check.across and check.slow and check.machine.fabric != "ethernet" and not _rdma_said(case, check):
            busbw, _ = check.would_be(**SOCKETS)
            if check.is_like(**SOCKETS) or check.comparison.measured * 1e9 < busbw:
                evidence = f"{bandwidth_words(check)}; TCP sockets would give about {format_bandwidth(busbw)}"
                yield Cause("TCP fallback", evidence, setting, transports(case), Strength.LIKELY, gain=0.9)
                return


def _use_rdma(case: Case) -> str:
    kinds = _fabrics(case)
    return next((PLUGINS[kind] for kind in PLUGINS if kind in kinds), USE_RDMA)


def _fabrics(case: Case) -> set[str]:
    """The kinds of networks that the plan's nodes and those of the tables have."""
    kinds = {check.machine.fabric for check in case.checks if check.across}
    return kinds | ({case.plan.question.cluster.node.fabric.kind} if case.plan else set())


def _sockets_said(case: Case) -> str:
    """What a file says of sockets between nodes; empty where none does, or the network has nothing better."""
    if _fabrics(case) == {"ethernet"}:
        return ""
    for file, log in case.nccl:
        between = (log.nodes or len(log.hosts) or 1) > 1
        used = next((way for way in log.transports if way.startswith("NET/Socket")), "")
        if used or (log.network.lower() == "socket" and (between or case.across)):
            why = f", NCCL_IB_DISABLE={log.settings['NCCL_IB_DISABLE']}" if _disabled(log.settings) else ""
            return f"{file.path}: NCCL {'sends via ' + used if used else 'uses network Socket'}{why}"
        if _disabled(log.settings) and (between or case.across):
            return f"{file.path}: NCCL_IB_DISABLE={log.settings['NCCL_IB_DISABLE']}, which leaves sockets only"
    for file, sign in case.signs("no_rdma_device"):
        if case.across:
            return f"{file.path}, line {sign.line}: {sign.text}"
    return ""


def _disabled(settings: Mapping[str, str]) -> bool:
    return settings.get("NCCL_IB_DISABLE", "0") not in ("0", "")


def _rdma_said(case: Case, check: TableCheck) -> bool:
    """Whether the log of a table shows that it went over RDMA."""
    for file, log in case.nccl:
        if file.path == check.path:
            return any(way.startswith("NET/") and not way.startswith("NET/Socket") for way in log.transports)
    return False


def shared_nic(case: Case) -> Iterator[Cause]:
    """Fewer adapters in use than the node has: NCCL_IB_HCA names one, or the bandwidth is that of one."""
    told = case.setting("NCCL_IB_HCA")
    for check in case.checks:
        if not (check.across and check.slow and check.nic_count > 1):
            continue
        each = check.stated[0].nic_gbps_per_node / check.nic_count
        used = len(told[1].strip("=").split(",")) if told and not told[1].startswith("^") else 0
        ranks = check.stated[0].n_ranks // check.stated[0].n_nodes
        setting = (
            "let NCCL_IB_HCA name every adapter (=mlx5_0,mlx5_1,...; it is a prefix: mlx5_1 means mlx5_10 too), "
            "and give a container all of them"
        )
        if told and used < min(check.nic_count, ranks):
            evidence = f"{told[0].path}: NCCL_IB_HCA is {told[1]}, for {ranks} GPUs of a node; {bandwidth_words(check)}"
            yield Cause("shared NIC", evidence, setting, transports(case), Strength.SHOWN, gain=0.8)
            return
        if check.is_like(nic_gbps_per_node=each):
            busbw, _ = check.would_be(nic_gbps_per_node=each)
            evidence = (
                f"{bandwidth_words(check)}; one of the {check.nic_count} adapters would give {format_bandwidth(busbw)}"
            )
            strength = Strength.POSSIBLE if check.taken else Strength.LIKELY
            yield Cause("shared NIC", evidence, setting, transports(case), strength, gain=0.6)
            return


def no_gpu_direct(case: Case) -> Iterator[Cause]:
    """RDMA that goes through host memory."""
    setting = (
        "load nvidia_peermem (or use a kernel and driver with DMA-BUF), put NIC and GPU behind one PCIe switch, "
        "switch ACS off; NCCL_NET_GDR_LEVEL=SYS allows longer ways where the platform is known to do well"
    )
    for file, log in case.nccl:
        ways = [way for way in log.transports if way.startswith("NET/IB")]
        if ways and not any("GDRDMA" in way for way in ways):
            evidence = f"{file.path}: channels go via {ways[0]} without GDRDMA"
            strength = Strength.SHOWN
            yield Cause("no GPUDirect", evidence, setting, transports(case), strength, gain=0.7)
            return


def wrong_gid_or_hca(case: Case) -> Iterator[Cause]:
    """RDMA connections that are refused, or messages that get no answer."""
    setting = (
        "NCCL_IB_GID_INDEX (the RoCE v2 line of show_gids, often 3; NCCL chooses by itself from 2.21 on), "
        "NCCL_IB_HCA without storage and management ports, the same MTU, and priority flow control on the switches"
    )
    for file, sign in case.signs("ib_setup"):
        evidence = f"{file.path}, line {sign.line}: {sign.text}"
        yield Cause(
            "wrong GID or HCA", evidence, setting, "show_gids; ibdev2netdev; ibv_devinfo", Strength.SHOWN, gain=0.9
        )
        return
    for file, sign in case.signs("ib_completion"):
        status = int(sign.figures.get("status", 0))
        said = {12: "no answer after all retries", 13: "receiver not ready", 5: "flushed after an earlier error"}
        evidence = f"{file.path}, line {sign.line}: {sign.text}"
        evidence += f" (status {status}: {said[status]})" if status in said else ""
        device = sign.words.get("device", "mlx5_0").partition(":")[0]
        yield Cause(
            "wrong GID or HCA" if status == 12 else "RDMA error",
            evidence,
            f"{setting}; a bad cable does the same: NCCL_IB_TIMEOUT=22 and NCCL_IB_RETRY_CNT=7 only hide it",
            f"mlxlink -d {device} -m -c; perfquery; show_gids",
            Strength.SHOWN,
            gain=0.8,
        )
        return


def slow_link(case: Case) -> Iterator[Cause]:
    """A network that gives less than it should, whatever the reason."""
    slow = [check for check in case.checks if check.across and check.slow]
    if not slow:
        return
    check = max(slow, key=lambda each: each.comparison.factor)
    taken = f" ({check.taken}: name yours with --cluster)" if check.taken else ""
    fine = sum(each.across and not each.slow for each in case.checks)
    others = f"; {counted(fine, 'other table')} between nodes as expected" if fine else ""
    yield Cause(
        "slow link",
        f"{bandwidth_words(check)}{taken}{others}",
        "look for oversubscribed or busy switches, ports that trained low, PFC and ECN on RoCE (NCCL_IB_TC), "
        "NCCL_IB_QPS_PER_CONNECTION=4 on networks with several paths; compare pairs of nodes",
        nccl_tests(case, "sendrecv", variables="NCCL_DEBUG=WARN"),
        Strength.POSSIBLE if check.taken else Strength.LIKELY,
        gain=0.3,
    )


RULES = (tcp_fallback, shared_nic, no_gpu_direct, wrong_gid_or_hca, slow_link)
