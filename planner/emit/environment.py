"""The environment that a cluster's wiring calls for: each variable with its reason, and none that is needless.

What is left alone, because NCCL, RCCL and torch do it by themselves: NCCL_P2P_DISABLE (NCCL asks the driver which
accelerators reach each other and takes host memory where they do not: NVIDIA/nccl @5067397c, 2.30,
src/graph/paths.cc, ncclTopoCheckP2p), NCCL_IB_DISABLE (RoCE is verbs too: 1 would leave TCP sockets),
NCCL_IB_GID_INDEX (chosen by NCCL from 2.21 on: its user guide, NCCL_IB_ADDR_FAMILY), NCCL_MNNVL_ENABLE (found out),
TORCH_NCCL_ASYNC_ERROR_HANDLING (on by default).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from planner.emit.job import Job, Variable
from planner.emit.quoting import comment, shell_word
from planner.quantities import to_base
from planner.spec.cluster import Cluster, Fabric

VERBS = {"infiniband": "InfiniBand", "roce": "Ethernet"}
"""Fabrics that NCCL drives through verbs -> the link layer that Linux states of their ports."""
LIBFABRIC = ("efa", "slingshot")
GPU_VENDORS = ("nvidia", "amd")

ALLOCATOR = Variable(
    "PYTORCH_ALLOC_CONF",
    "expandable_segments:True",
    "torch's allocator grows its segments instead of leaving gaps between them (before torch 2.10 the name was "
    "PYTORCH_CUDA_ALLOC_CONF)",
)
THREADS = Variable("OMP_NUM_THREADS", "1", "one process per GPU: threads of all of them together would be too many")
INTERFACES = Variable(
    "NCCL_SOCKET_IFNAME",
    "^lo,docker,virbr,br-,veth,cni,podman",
    "bridges of containers and virtual machines have the same address on every node; NCCL itself passes over no others "
    "than lo, docker and virbr. Where one network is the fast one name it, as in =eth1",
)


@dataclass(frozen=True)
class _Guard:
    """What NCCL_NET is for a fabric, and why."""

    value: str
    reason: str


GUARDS = {
    **dict.fromkeys(
        VERBS,
        _Guard("IB", "stop where no HCA can be used, instead of falling back to TCP sockets without a word"),
    ),
    **dict.fromkeys(
        LIBFABRIC,
        _Guard(
            "AWS Libfabric",
            "stop where the plugin aws-ofi-nccl is missing, instead of falling back to TCP sockets without a word (the "
            "name that every version of it takes; from 1.12 on it calls itself Libfabric)",
        ),
    ),
}
"""Sources: NCCL user guide, NCCL_NET (internal networks IB and Socket); aws/aws-ofi-nccl @2daf7d30,
src/nccl_ofi_interface_nvidia.cpp (the names that the plugin answers to)."""


def variables(job: Job) -> list[Variable]:
    """The variables of every node; a program's own come last."""
    return [*_of_torch(job.contents.cluster), *_of_network(job.contents.cluster), *job.program.environment]


def _of_torch(cluster: Cluster) -> Iterator[Variable]:
    yield THREADS
    if cluster.accelerator.vendor in GPU_VENDORS:
        yield ALLOCATOR


def _of_network(cluster: Cluster) -> Iterator[Variable]:
    """Between nodes only: within one, NCCL finds its way."""
    if cluster.num_nodes > 1:
        yield INTERFACES
        guard = GUARDS.get(cluster.node.fabric.kind)
        if guard:
            yield Variable("NCCL_NET", guard.value, guard.reason)


def environment_lines(job: Job) -> list[str]:
    """Bash that sets the variables which the person who starts it has not set already."""
    lines = []
    for variable in variables(job):
        lines += comment(variable.reason)
        lines.append(f"[[ -v {variable.name} ]] || export {variable.name}={shell_word(variable.value)}")
    return lines + _adapter_lines(job.contents.cluster)


def _adapter_lines(cluster: Cluster) -> list[str]:
    """Bash that names the adapters of the fabric, and no others, in NCCL_IB_HCA.

    Their names differ from machine to machine, so they are read on the node: NCCL takes every port that is up
    (NVIDIA/nccl @5067397c, src/transport/net_ib/init.cc), also one for storage. Names match exactly behind a `=`;
    without it mlx5_1 is mlx5_10 as well (NCCL user guide, NCCL_IB_HCA).
    """
    fabric = cluster.node.fabric
    if cluster.num_nodes == 1 or fabric.kind not in VERBS:
        return []
    rate = round(fabric.nic_bandwidth / to_base(1, "Gb/s"))
    return [
        *comment(_adapter_reason(fabric, rate)),
        "if [[ ! -v NCCL_IB_HCA ]]; then",
        "    adapters=()",
        "    for port in /sys/class/infiniband/*/ports/*; do",
        '        [[ -e $port/state && $(< "$port/state") == *ACTIVE* ]] || continue',
        f'        [[ $(< "$port/link_layer") == {VERBS[fabric.kind]} && $(< "$port/rate") == "{rate} "* ]] || continue',
        "        device=${port%/ports/*}",
        '        adapters+=("${device##*/}:${port##*/}")',
        "    done",
        "    if (( ${#adapters[@]} > 0 )); then",
        '        NCCL_IB_HCA="=$(IFS=,; echo "${adapters[*]}")"',
        "        export NCCL_IB_HCA",
        "    fi",
        *_count_lines(fabric, rate),
        "fi",
    ]


def _adapter_reason(fabric: Fabric, rate: int) -> str:
    roce = (
        " RoCE is driven through verbs, like InfiniBand. NCCL chooses the GID (RoCE v2, IPv4) from 2.21 on; an older "
        "one needs NCCL_IB_GID_INDEX (see show_gids)."
    )
    return (
        f"The ports of this network by their exact names: those that are up at {rate} Gb/s. By itself NCCL takes all "
        f"that are up, also those of a network for storage.{roce if fabric.kind == 'roce' else ''}"
    )


def _count_lines(fabric: Fabric, rate: int) -> list[str]:
    """A remark where a node has more or fewer ports than the prediction counts on."""
    if not fabric.nics_per_node:
        return []
    ports, count = f"{VERBS[fabric.kind]} ports at {rate} Gb/s", fabric.nics_per_node
    return [
        f"    if (( ${{#adapters[@]}} != {count} && ! cpu )); then",
        f'        echo "launch: $HOSTNAME has ${{#adapters[@]}} {ports}, the plan counts on {count};" \\',
        '            "NCCL_IB_HCA says which to use" >&2',
        "    fi",
    ]
