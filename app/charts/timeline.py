"""The simulator's timeline: every pipeline rank's streams, from left to right, zoomable."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from app.charts import style
from app.palette import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION, YELLOW
from planner import Simulation, chrome_trace

MOST = 12_000
"""Slices that a browser draws without a wait."""
MOST_RANKS = 8
COLOURS = {
    "forward": SKY,
    "backward": BLUE,
    "gradients of inputs": BLUE,
    "gradients of weights": PURPLE,
    "optimizer and rest": GREEN,
    "sends": YELLOW,
    "collectives in a layer": ORANGE,
    "weights and gradients": VERMILION,
    "other": GREY,
}


def slices(simulation: Simulation) -> pd.DataFrame:
    """Every slice of the trace: rank, stream, what it is, start and length in milliseconds."""
    events = chrome_trace(simulation)["traceEvents"]
    streams = {
        (each["pid"], each["tid"]): each["args"]["name"]
        for each in events
        if each.get("ph") == "M" and each["name"] == "thread_name"
    }
    rows = [
        (
            each["pid"],
            streams.get((each["pid"], each["tid"]), ""),
            each["name"],
            each["cat"],
            each["ts"] / 1e3,
            each["dur"] / 1e3,
        )
        for each in events
        if each.get("ph") == "X"
    ]
    return pd.DataFrame(rows, columns=["rank", "stream", "what", "category", "start (ms)", "length (ms)"])


def drawn_ranks(frame: pd.DataFrame) -> list[int]:
    """Ranks that are drawn unless others are asked for: all, or so many as can be, evenly spaced."""
    ranks = sorted(frame["rank"].unique())
    each = int((frame["stream"] == "compute").sum()) // max(len(ranks), 1)
    number = min(len(ranks), MOST_RANKS, max(MOST // max(each, 1), 2))
    return sorted({int(ranks[round(place)]) for place in np.linspace(0, len(ranks) - 1, number)})


def timeline(frame: pd.DataFrame, ranks: Iterable[int]) -> tuple[style.Drawing, pd.DataFrame, bool]:
    """The slices of some ranks; whether some are left out because there are too many."""
    mine = frame[frame["rank"].isin(list(ranks))].copy()
    if len(mine) > MOST:
        computing = mine[mine["stream"] == "compute"]
        mine = computing if len(computing) <= MOST else computing.sort_values("start (ms)").head(MOST)
    left_out = len(mine) < int(frame["rank"].isin(list(ranks)).sum())
    mine["end (ms)"] = mine["start (ms)"] + mine["length (ms)"]
    mine["row"] = "rank " + mine["rank"].astype(str) + ", " + mine["stream"]
    mine["colour"] = [
        _colour(stream, category) for stream, category in zip(mine["stream"], mine["category"], strict=True)
    ]
    order = list(mine.sort_values(["rank", "stream"], key=_streams_first)["row"].unique())
    used = [name for name in COLOURS if name in set(mine["colour"])]
    zoom = alt.selection_interval(bind="scales", encodings=["x"])
    chart = (
        alt.Chart(mine)
        .mark_bar(height={"band": 0.82}, strokeWidth=0)
        .encode(
            y=style.rows("row", sort=order, longest=210),
            x=alt.X("start (ms):Q", title="time (ms): scroll to zoom, drag to move", scale=alt.Scale(nice=False)),
            x2="end (ms):Q",
            color=alt.Color(
                "colour:N",
                scale=alt.Scale(domain=used, range=[COLOURS[name] for name in used]),
                legend=style.legend(columns=3),
            ),
            tooltip=style.tips("what", "row", "start (ms)", "length (ms)", digits=",.3f"),
        )
        .add_params(zoom)
        .properties(height=style.height(len(order), step=22, names=len(used)))
    )
    return chart, mine[["rank", "stream", "what", "start (ms)", "length (ms)"]], left_out


def _streams_first(column: pd.Series[Any]) -> pd.Series[Any]:
    """Compute before the other streams of a rank."""
    return column if column.name == "rank" else column.map(lambda name: (name != "compute", name))


def _colour(stream: str, category: str) -> str:
    if stream == "compute":
        return category if category in COLOURS else "optimizer and rest"
    if stream.startswith("send"):
        return "sends"
    if stream.startswith(("gather", "reduction")):
        return "weights and gradients"
    return "collectives in a layer" if stream.startswith(("tp", "cp", "ep")) else "other"
