"""The topology drawn: vertices by level, links coloured by how busy a plan keeps them."""

from __future__ import annotations

import math
from typing import Any

import altair as alt
import pandas as pd

from app.charts import style
from app.palette import BLUE, GREY, VERMILION
from planner import Cluster, PlanTraffic, format_bandwidth, graph, link_class

LEVELS = {
    "nvswitch": 0.0,
    "gpu": 1.0,
    "pcie": 2.0,
    "memory": 2.9,
    "socket": 2.6,
    "nic": 3.6,
    "leaf": 4.8,
    "pod": 5.6,
    "spine": 6.4,
    "wan": 7.2,
}
"""Height of each kind of vertex: inside a node below its NICs, the network above."""
BEND = 2.2
"""How far the middle GPUs of a mesh hang below the outer ones."""
NAMES = {
    "nvswitch": "switch of GPUs",
    "gpu": "GPU",
    "pcie": "PCIe switch",
    "memory": "host memory",
    "socket": "CPU socket",
    "nic": "NIC",
    "leaf": "leaf switch",
    "pod": "pod spines",
    "spine": "spine",
    "wan": "WAN",
}
CLASSES = {
    "wan": "WAN",
    "pod_uplink": "pod uplinks",
    "leaf_uplink": "leaf uplinks",
    "nic": "NIC to leaf",
    "nic_slot": "NIC slots",
    "socket": "between sockets",
    "host_memory": "host memory",
    "pcie_uplink": "PCIe uplinks",
    "gpu_pcie": "GPU to PCIe",
    "gpu_switch": "GPU to switch",
    "gpu_gpu": "GPU to GPU",
}


def link_table(traffic: PlanTraffic) -> pd.DataFrame:
    """Every class of links with what a step puts on its busiest link."""
    return pd.DataFrame(
        [
            {
                "links": CLASSES.get(each["class"], each["class"]),
                "kind": each["kind"],
                "number": each["links"],
                "one way (GB/s)": each["capacity_gb_per_s"],
                "busiest per step (GB)": each["busiest_gb"],
                "mean per step (GB)": each["mean_gb"],
                "busy (s)": each["busy_s"],
                "busy (% of step)": 100 * each["utilisation"],
                "loaded most by": each["loads_most"] or "nothing",
            }
            for each in traffic.as_dict()["classes"]
        ]
    )


def topology(cluster: Cluster, traffic: PlanTraffic) -> tuple[style.Drawing, pd.DataFrame]:
    """The drawn nodes of a cluster with its links; equal nodes beyond those are not drawn."""
    links = graph(cluster)
    places = _places(links)
    busy = {(each["class"], round(each["capacity_gb_per_s"], 6)): each for each in traffic.as_dict()["classes"]}
    edges = _edges(links, places, busy)
    scale = alt.Scale(type="sqrt", domain=[0, 100], range=[GREY, BLUE, VERMILION], interpolate="rgb", clamp=True)
    colour = alt.Color(
        "busy (% of step):Q",
        scale=scale,
        legend=alt.Legend(orient="bottom", title="link busy (% of step)", gradientLength=220),
    )
    lines = (
        alt.Chart(edges)
        .mark_rule(opacity=0.9)
        .encode(
            x=alt.X("x:Q", axis=None, scale=alt.Scale(nice=False, padding=20)),
            y=alt.Y("y:Q", axis=None, scale=alt.Scale(nice=False, padding=20)),
            x2="x2:Q",
            y2="y2:Q",
            strokeWidth=alt.StrokeWidth("width:Q", scale=None),
            color=colour,
            tooltip=style.tips(
                "links", "kind", "one way (GB/s)", "busiest per step (GB)", "busy (% of step)", "loaded most by"
            ),
        )
    )
    vertices = pd.DataFrame(
        [
            {"x": x, "y": y, "what": NAMES.get(vertex[0], vertex[0]), "name": " ".join(str(part) for part in vertex)}
            for vertex, (x, y) in places.items()
        ]
    )
    dots = (
        alt.Chart(vertices)
        .mark_square(size=80, opacity=1)
        .encode(x="x:Q", y="y:Q", color=alt.value("#666666"), tooltip=["what", "name"])
    )
    words = alt.Chart(_level_words(vertices)).mark_text(align="right", dx=-14, color="gray", fontWeight="bold")
    labels = words.encode(x="x:Q", y="y:Q", text="what:N")
    height = 120 + int(62 * vertices["what"].nunique()) + (110 if vertices["y"].nunique() > len(NAMES) else 0)
    return alt.layer(lines, dots, labels).properties(height=height), edges.drop(columns=["x", "y", "x2", "y2", "width"])


def _places(links: Any) -> dict[tuple[Any, ...], tuple[float, float]]:
    """Where each vertex stands: those of a node side by side, what is shared above the middle of all."""
    by_node: dict[Any, dict[str, list[Any]]] = {}
    for vertex, data in links.nodes(data=True):
        kind = data["kind"]
        owner = data["node"] if data["node"] is not None else None
        by_node.setdefault(owner, {}).setdefault(kind, []).append(vertex)
    nodes = sorted(each for each in by_node if each is not None)
    width = max((len(group) for node in nodes for group in by_node[node].values()), default=1) + 2
    places: dict[tuple[Any, ...], tuple[float, float]] = {}
    for column, node in enumerate(nodes):
        for kind, group in by_node[node].items():
            bend = BEND if kind == "gpu" and _is_mesh(links, group) else 0.0
            for number, vertex in enumerate(sorted(group)):
                along = (number + 0.5) / len(group)
                level = LEVELS.get(kind, 3.0) - bend * math.sin(math.pi * along)
                places[vertex] = column * width + along * (width - 2), level
    for kind, group in sorted(by_node.get(None, {}).items(), key=lambda item: LEVELS.get(item[0], 3.0)):
        for number, vertex in enumerate(sorted(group, key=str)):
            places[vertex] = (
                _above(links, vertex, places, (number + 0.5) * len(nodes) * width / len(group)),
                LEVELS[kind],
            )
    return places


def _is_mesh(links: Any, gpus: list[Any]) -> bool:
    """Whether GPUs have links of their own: on a bend no such link lies over another."""
    return any(links.has_edge(gpus[0], other) for other in gpus[1:])


def _above(links: Any, vertex: Any, places: dict[Any, tuple[float, float]], otherwise: float) -> float:
    """Over the middle of what is joined to a vertex; leaves that join the same places stand side by side."""
    below = [places[other][0] for other in links.successors(vertex) if other in places]
    if not below:
        return otherwise
    middle = sum(below) / len(below)
    return middle if len(below) < len({place for place, _ in places.values()}) / 2 else (middle + otherwise) / 2


def _edges(links: Any, places: dict[Any, tuple[float, float]], busy: dict[tuple[str, float], Any]) -> pd.DataFrame:
    rows = []
    for one, other, data in links.edges(data=True):
        if str(one) > str(other):
            continue
        name = link_class((str(one[0]), str(other[0])))
        load = busy.get((name, round(data["capacity"] / 1e9, 6)), {})
        (x, y), (x2, y2) = places[one], places[other]
        rows.append(
            {
                "x": x,
                "y": y,
                "x2": x2,
                "y2": y2,
                "width": 1 + max(math.log10(data["capacity"] / 1e9), 0),
                "links": CLASSES.get(name, name),
                "kind": data["kind"],
                "one way (GB/s)": data["capacity"] / 1e9,
                "busiest per step (GB)": load.get("busiest_gb", 0.0),
                "busy (% of step)": 100 * load.get("utilisation", 0.0),
                "loaded most by": load.get("loads_most") or "nothing",
                "words": format_bandwidth(data["capacity"]),
            }
        )
    return pd.DataFrame(rows)


def _level_words(vertices: pd.DataFrame) -> pd.DataFrame:
    """The name of each level at its left end."""
    left = vertices["x"].min()
    return vertices.drop_duplicates("what").assign(x=left)[["x", "y", "what"]]
