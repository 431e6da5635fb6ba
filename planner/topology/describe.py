"""A cluster's links in words: the levels of its network, and what limits the groups of an axis."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from planner.errors import unknown_name
from planner.quantities import format_bandwidth, format_seconds
from planner.spec.cluster import Cluster, Fabric, Node, Pool, Wiring
from planner.spec.plan import Plan
from planner.topology.contention import Share
from planner.topology.graph import pod_uplink_bandwidth, uplink_bandwidth
from planner.topology.group_links import share_of
from planner.topology.patterns import Pattern
from planner.topology.placement import AXES
from planner.topology.rings import MOST_MEMBERS, ring_bandwidth
from planner.topology.routes import Limit


def describe(cluster: Cluster) -> list[str]:
    """Lines of a small tree: pools, the links inside a node, NICs, leaves, sites; bandwidths of one direction."""
    branches = [(_pool_title(pool), _pool_lines(pool, alone=cluster.num_nodes == 1)) for pool in cluster.pools]
    if cluster.wan:
        sites = ", ".join(dict.fromkeys(pool.site for pool in cluster.pools))
        line = f"{format_bandwidth(cluster.wan.bandwidth)} and {format_seconds(cluster.wan.latency)} to each site"
        branches.append((f"WAN between sites {sites}: {line}", []))
    title = f"{cluster.name}: {_count(cluster.world_size, 'GPU')} in {_count(cluster.num_nodes, 'node')}"
    return [title, *_tree(branches)]


def bottleneck(plan: Plan, cluster: Cluster, axis: str) -> str:
    """What limits the groups of one axis of one plan, in words.

    Raises SpecError for an unknown axis, and as `group_links` does.
    """
    if axis not in AXES:
        raise unknown_name("axis", axis, AXES)
    size, pattern, share = share_of(plan, cluster, axis)
    if size == 1:
        return "a group of one: nothing to send"
    if not held_by_network(share):
        return _inside(share.local_limit, cluster.node)
    if "nic" in share.remote_limit.ends and pattern != Pattern.CHAIN and len(cluster.pools) == 1:
        return _nics(share, cluster)
    return _shared(share.remote_limit, cluster)


def held_by_network(share: Share) -> bool:
    """Whether the links between domains take as long as those inside, or longer."""
    inside, across = share.parts.inside / share.local_limit.bandwidth, share.parts.across / share.remote_limit.bandwidth
    return bool(share.remote_limit.kind) and across >= inside


def _pool_title(pool: Pool) -> str:
    site = f" at site {pool.site}" if pool.site else ""
    return f"{pool.num_nodes:,} x {pool.node.name}{site}: {pool.node.gpus_per_node} x {pool.node.accelerator.name} each"


def _pool_lines(pool: Pool, *, alone: bool) -> list[str]:
    node, fabric = pool.node, pool.node.fabric
    lines = [_WIRING[node.wiring](node)] if node.gpus_per_node * node.domain_nodes > 1 else []
    if node.wiring in (Wiring.PCIE, Wiring.HOST) and node.gpus_per_node > 1:
        lines += _host_lines(node)
    if alone or not fabric.nics_per_node:
        return lines
    each, share = format_bandwidth(fabric.nic_bandwidth), format_bandwidth(fabric.node_bandwidth / node.gpus_per_node)
    lines.append(f"{_count(fabric.nics_per_node, 'NIC')} per node ({fabric.kind}) of {each}: {share} per GPU")
    return [*lines, _leaf_line(pool), *([_pod_line(fabric)] if fabric.nodes_per_pod else [])]


def _switch_line(node: Node) -> str:
    ranks = node.gpus_per_node * node.domain_nodes
    where = f" across {node.domain_nodes} nodes" if node.domain_nodes > 1 else ""
    return f"one switch for {ranks} GPUs{where} ({node.link}): {format_bandwidth(node.link_bandwidth)} per GPU"


def _mesh_line(node: Node) -> str:
    links, gpus = node.link_pairs, range(node.gpus_per_node)
    low, high = format_bandwidth(min(links.values())), format_bandwidth(max(links.values()))
    line = f"{len(links)} linked pairs ({node.link}) of {low if low == high else f'{low} to {high}'}"
    if len(gpus) > MOST_MEMBERS:
        return line
    rates = tuple(tuple(links.get((min(i, j), max(i, j)), 0.0) for j in gpus) for i in gpus)
    return f"{line}; best rings over all {len(gpus)} GPUs: {format_bandwidth(ring_bandwidth(rates))}"


def _pcie_line(node: Node) -> str:
    peers = "peer access" if node.wiring == Wiring.PCIE else "no peer access: through host memory"
    return f"{node.link} ({peers}): {format_bandwidth(node.link_bandwidth)} per GPU"


def _host_lines(node: Node) -> list[str]:
    shared = node.gpus_per_pcie_switch
    lines = [f"{shared} GPUs share each PCIe switch and its uplink"] if shared > 1 else []
    if node.sockets > 1:
        lines.append(f"{node.sockets} sockets joined by {format_bandwidth(node.socket_bandwidth)}")
    return lines


_WIRING: dict[Wiring, Callable[[Node], str]] = {
    Wiring.SWITCH: _switch_line,
    Wiring.MESH: _mesh_line,
    Wiring.PCIE: _pcie_line,
    Wiring.HOST: _pcie_line,
}


def _leaf_line(pool: Pool) -> str:
    fabric = pool.node.fabric
    place = f"{_count(fabric.nodes_per_leaf, 'node')} per leaf switch" if fabric.nodes_per_leaf else "a leaf per rail"
    if fabric.oversubscription <= 1:
        return f"{place}, non-blocking above"
    uplink = format_bandwidth(uplink_bandwidth(pool))
    return f"{place}, oversubscribed {fabric.oversubscription:g}:1 above: {uplink} from each leaf to the spine"


def _pod_line(fabric: Fabric) -> str:
    pod = f"{_count(fabric.nodes_per_pod, 'node')} per pod"
    if fabric.pod_oversubscription <= 1:
        return f"{pod}, non-blocking to the core"
    uplink = format_bandwidth(pod_uplink_bandwidth(fabric))
    return f"{pod}, oversubscribed {fabric.pod_oversubscription:g}:1 above: {uplink} from each pod to the core"


def _tree(branches: Sequence[tuple[str, Sequence[str]]]) -> list[str]:
    lines = []
    for number, (title, twigs) in enumerate(branches):
        last = number == len(branches) - 1
        lines.append(f"{'└─' if last else '├─'} {title}")
        for twig in twigs:
            lines.append(f"{' ' if last else '│'}  {'└─' if twig is twigs[-1] else '├─'} {twig}")
    return lines


def _inside(limit: Limit, node: Node) -> str:
    """The link inside a domain that limits a group."""
    if "nvswitch" in limit.ends:
        return f"{limit.kind} to the switch: {format_bandwidth(limit.bandwidth)} per rank"
    if limit.ends == ("gpu", "gpu"):
        return f"direct {limit.kind} links between the group's GPUs: {format_bandwidth(limit.bandwidth)} per rank"
    words = _shared_words(limit)
    return f"{words}, without peer access between GPUs" if node.wiring == Wiring.HOST else words


def _nics(share: Share, cluster: Cluster) -> str:
    """`8 groups share the node's 8 NICs: 50.0 GB/s each`."""
    node = cluster.node
    nodes = min(node.domain_nodes, cluster.num_nodes)
    groups, nics = nodes * node.gpus_per_node // share.local, nodes * node.fabric.nics_per_node
    place = "node" if node.domain_nodes == 1 else "link domain"
    bandwidth = format_bandwidth(share.local * share.remote_limit.bandwidth)
    doors = "NIC" if nics == 1 else f"{nics} NICs"
    if groups == 1:
        return f"one group has the {place}'s {doors}: {bandwidth}"
    return f"{groups} groups share the {place}'s {doors}: {bandwidth} each"


def _shared(limit: Limit, cluster: Cluster) -> str:
    words, fabric = _shared_words(limit), cluster.node.fabric
    if "leaf" in limit.ends and "nic" not in limit.ends:
        return f"{words}, oversubscribed {fabric.oversubscription:g}:1"
    return f"{words}, oversubscribed {fabric.pod_oversubscription:g}:1" if "pod" in limit.ends else words


def _shared_words(limit: Limit) -> str:
    name = next((name for ends, name in _NAMES if set(limit.ends) <= ends), limit.kind)
    share, capacity = format_bandwidth(limit.bandwidth), format_bandwidth(limit.capacity)
    if limit.load <= 1:
        return f"{name}: {share} per rank"
    return f"{limit.load:g} ranks' traffic shares {name} ({capacity}): {share} each"


LINK_CLASSES: Mapping[str, tuple[frozenset[str], ...]] = {
    "wan": (frozenset({"spine", "wan"}),),
    "pod_uplink": (frozenset({"pod", "spine"}),),
    "leaf_uplink": (frozenset({"leaf", "spine"}), frozenset({"leaf", "pod"})),
    "nic": (frozenset({"nic", "leaf"}),),
    "nic_slot": (frozenset({"pcie", "nic"}), frozenset({"socket", "nic"})),
    "socket": (frozenset({"socket"}),),
    "host_memory": (frozenset({"socket", "memory"}),),
    "pcie_uplink": (frozenset({"pcie", "socket"}),),
    "gpu_pcie": (frozenset({"gpu", "pcie"}), frozenset({"gpu", "socket"})),
    "gpu_switch": (frozenset({"gpu", "nvswitch"}),),
    "gpu_gpu": (frozenset({"gpu"}),),
}
"""Classes of links, from the outermost to the innermost: which kinds of vertices they join."""


def link_class(ends: Iterable[str]) -> str:
    """The key in LINK_CLASSES of a link between two kinds of vertices."""
    both = frozenset(ends)
    return next(name for name, joined in LINK_CLASSES.items() if both in joined)


_NAMES = (
    ({"pod", "spine"}, "a pod's uplinks"),
    ({"leaf", "pod", "spine"}, "a leaf's uplinks"),
    ({"spine", "wan"}, "the WAN"),
    ({"socket"}, "the link between CPU sockets"),
    ({"socket", "memory"}, "host memory"),
    ({"pcie", "socket"}, "a PCIe switch's uplink"),
    ({"gpu", "pcie", "socket"}, "a GPU's PCIe link"),
    ({"nic", "leaf", "pcie", "socket"}, "a NIC"),
)
"""What joins vertices of these kinds."""


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
