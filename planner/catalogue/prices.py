"""What an accelerator costs by the hour."""

from __future__ import annotations

from dataclasses import dataclass

from planner.spec.cluster import Cluster, Node


@dataclass(frozen=True)
class Price:
    """USD per accelerator and hour, from low to high; date and source are empty where the user states it."""

    low: float
    high: float
    date: str = ""
    source: str = ""


def usd_per_gpu_hour(machines: Cluster) -> Price | None:
    """Price of one accelerator of a cluster, on average; None if any pool has none.

    A node type's own price goes before its accelerator's market range; pools are weighed by their accelerators. Of
    several dates the oldest counts.
    """
    priced = [(_price(pool.node), pool.num_nodes * pool.node.gpus_per_node) for pool in machines.pools]
    total = sum(number for _, number in priced)
    low = high = 0.0
    dates, sources = [], []
    for price, number in priced:
        if price is None:
            return None
        low, high = low + price.low * number / total, high + price.high * number / total
        dates.append(price.date)
        sources.append(price.source)
    return Price(low, high, min(dates), "; ".join(dict.fromkeys(sources)))


def _price(machine: Node) -> Price | None:
    part = machine.accelerator
    for prices, date, source in (
        (machine.usd_per_gpu_hour, machine.price_date, machine.sources.get("usd_per_gpu_hour")),
        (part.usd_per_hour, part.price_date, part.sources.get("usd_per_hour")),
    ):
        if prices is not None:
            return Price(float(prices[0]), float(prices[1]), date, source.source if source else "")
    return None
