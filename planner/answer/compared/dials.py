"""The amounts of a question that can be turned: of the network, the accelerators, the batch, the price."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from planner.answer.question import Question
from planner.errors import SpecError
from planner.spec.accelerator import Accelerator
from planner.spec.cluster import Fabric, Node


@dataclass(frozen=True)
class Dial:
    """An amount of a question, in words; `unit` is an example of it as it is written, empty for whole numbers.

    `now` is the amount in base units, `scaled` the question with so many times as much.
    """

    words: str
    unit: str
    now: Callable[[Question], float]
    scaled: Callable[[Question, float], Question]

    @property
    def whole(self) -> bool:
        """Whether only whole amounts are possible."""
        return not self.unit


def _of_nodes(asked: Question, change: Callable[[Node], Node]) -> Question:
    """The question with every node changed."""
    pools = tuple(replace(pool, node=change(pool.node)) for pool in asked.cluster.pools)
    return replace(asked, cluster=replace(asked.cluster, pools=pools))


def _of_fabric(asked: Question, change: Callable[[Fabric], Fabric]) -> Question:
    return _of_nodes(asked, lambda node: replace(node, fabric=change(node.fabric)))


def _of_accelerator(asked: Question, change: Callable[[Accelerator], Accelerator]) -> Question:
    return _of_nodes(asked, lambda node: replace(node, accelerator=change(node.accelerator)))


def _link(asked: Question, by: float) -> Question:
    def faster(node: Node) -> Node:
        pairs = {pair: by * each for pair, each in node.link_pairs.items()}
        return replace(node, link_bandwidth=by * node.link_bandwidth, link_pairs=pairs)

    return _of_nodes(asked, faster)


def _compute(asked: Question, by: float) -> Question:
    return _of_accelerator(
        asked, lambda part: replace(part, peak={name: by * peak for name, peak in part.peak.items()})
    )


def _memory(asked: Question, by: float) -> Question:
    return _of_accelerator(
        asked, lambda part: replace(part, memory=by * part.memory, usable_memory=by * part.usable_memory)
    )


def _job(asked: Question, field: str, by: float) -> Question:
    """The question with another count of the job, which is then given."""
    changed: dict[str, Any] = {field: round(by * getattr(asked.workload, field))}
    workload, choices = replace(asked.workload, **changed), replace(asked.choices, **changed)
    return replace(asked, workload=workload, choices=choices)


def _nodes(asked: Question, by: float) -> Question:
    pools = tuple(replace(pool, num_nodes=round(by * pool.num_nodes)) for pool in asked.cluster.pools)
    name = f"{pools[0].num_nodes}x{pools[0].node.name}" if len(pools) == 1 else asked.cluster.name
    return replace(asked, cluster=replace(asked.cluster, pools=pools, name=name), cluster_text=name)


def _price_now(asked: Question) -> float:
    if asked.price is None:
        raise SpecError("no price is known; give one with --usd-per-gpu-hour")
    return (asked.price.low + asked.price.high) / 2


def _price(asked: Question, by: float) -> Question:
    """Of a range of prices the middle."""
    return replace(asked, workload=replace(asked.workload, usd_per_gpu_hour=by * _price_now(asked)))


DIALS: Mapping[str, Dial] = {
    "nic": Dial(
        "bandwidth of each NIC",
        "400Gb/s",
        lambda asked: asked.cluster.node.fabric.nic_bandwidth,
        lambda asked, by: _of_fabric(asked, lambda net: replace(net, nic_bandwidth=by * net.nic_bandwidth)),
    ),
    "latency": Dial(
        "latency of the network",
        "5us",
        lambda asked: asked.cluster.node.fabric.latency,
        lambda asked, by: _of_fabric(asked, lambda net: replace(net, latency=by * net.latency)),
    ),
    "link": Dial("links in the node", "900GB/s", lambda asked: asked.cluster.node.link_bandwidth, _link),
    "compute": Dial("matrix peak", "989TFLOP/s", lambda asked: asked.cluster.accelerator.half_peak, _compute),
    "memory": Dial("memory of each GPU", "40GB", lambda asked: asked.cluster.accelerator.memory, _memory),
    "memory-bandwidth": Dial(
        "memory bandwidth",
        "3.35TB/s",
        lambda asked: asked.cluster.accelerator.memory_bandwidth,
        lambda asked, by: _of_accelerator(
            asked, lambda part: replace(part, memory_bandwidth=by * part.memory_bandwidth)
        ),
    ),
    "seq-len": Dial(
        "sequence length", "", lambda asked: asked.workload.seq_len, lambda asked, by: _job(asked, "seq_len", by)
    ),
    "batch": Dial(
        "global batch",
        "",
        lambda asked: asked.workload.global_batch_size,
        lambda asked, by: _job(asked, "global_batch_size", by),
    ),
    "nodes": Dial("nodes", "", lambda asked: asked.cluster.num_nodes, _nodes),
    "price": Dial("price", "2USD", _price_now, _price),
}
"""Name -> what it turns. Bandwidths are those of one direction."""
