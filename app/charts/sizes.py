"""Many sizes drawn: a map of what fits, and speed, efficiency, days and money against the number of GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt
import pandas as pd

from app.charts import style
from app.palette import GREY, SERIES
from planner import Scaling, Side

MEASURES = {
    "tokens/s per GPU": ",.0f",
    "MFU (%)": ".1f",
    "step time (s)": ".3g",
    "memory per GPU (GiB)": ".1f",
    "USD per Mtok": ".3g",
}
"""What a cell can be coloured by, and how it is written."""
DEGREES = ("tp", "pp", "cp", "ep")


def cells(found: Mapping[tuple[int, int], Side], row: str) -> pd.DataFrame:
    """A row for each size and number of GPUs: the best plan with its figures, or why there is none."""
    return pd.DataFrame([{"GPUs": gpus, row: size, **_cell(side)} for (gpus, size), side in found.items()])


def _cell(side: Side) -> dict[str, Any]:
    if side.ranked is None:
        return {"plan": "none", "why not": side.reason, **dict.fromkeys(MEASURES), "degrees": ""}
    entry = side.ranked.as_dict()
    price = entry["usd_per_million_tokens"]
    plan = entry["plan"]
    used = [f"{name} {plan[name]}" for name in DEGREES if plan[name] > 1]
    return {
        "plan": entry["name"],
        "why not": "",
        "tokens/s per GPU": entry["tokens_per_s_per_gpu"],
        "MFU (%)": 100 * entry["mfu"],
        "step time (s)": entry["step_time_s"],
        "memory per GPU (GiB)": entry["peak_memory_gib"],
        "USD per Mtok": price,
        "degrees": "\n".join(used) or "dp",
    }


def size_map(frame: pd.DataFrame, row: str, measure: str) -> style.Drawing:
    """A cell for each size: coloured by a figure, with the figure and the degrees of the best plan in it."""
    frame = frame.copy()
    fits = frame["why not"] == ""
    frame["words"] = [
        f"{value:{MEASURES[measure]}}" if ok and value is not None and value == value else ("no" if not ok else "")
        for value, ok in zip(frame[measure], fits, strict=True)
    ]
    base = alt.Chart(frame).encode(
        x=alt.X("GPUs:O", title="GPUs", axis=alt.Axis(labelAngle=0, format=",d")),
        y=alt.Y(f"{row}:O", sort="descending", title=row, axis=alt.Axis(format=",d", labelOverlap=False)),
    )
    tips = [
        *style.tips("GPUs", row, "plan", digits=",d"),
        *(alt.Tooltip(name, format=form) for name, form in MEASURES.items()),
        alt.Tooltip("why not"),
    ]
    low, high = frame.loc[fits, measure].min(), frame.loc[fits, measure].max()
    colour = alt.Color(
        f"{measure}:Q",
        scale=alt.Scale(scheme="viridis", domain=[low, high]),
        legend=alt.Legend(orient="bottom", title=measure, gradientLength=240),
    )
    boxes = base.transform_filter("datum['why not'] === ''").mark_rect(stroke="white", strokeWidth=1)
    empty = base.transform_filter("datum['why not'] !== ''").mark_rect(
        fill=GREY, fillOpacity=0.25, stroke="white", strokeWidth=1
    )
    middle = float((low + high) / 2) if fits.any() else 0.0
    ink = {
        "condition": [
            {"test": "datum['why not'] !== ''", "value": "gray"},
            {"test": f"datum['{measure}'] > {middle}", "value": "#222"},
        ],
        "value": "white",
    }
    text = base.encode(tooltip=tips)
    words = text.mark_text(fontSize=12, fontWeight="bold", dy=-22).encode(text="words:N", color=ink)
    degrees = text.mark_text(fontSize=10, lineBreak="\n", dy=-9, baseline="top").encode(text="degrees:N", color=ink)
    if not fits.any():
        return alt.layer(empty.encode(tooltip=tips), words).properties(height=70 * frame[row].nunique() + 60)
    layers = alt.layer(empty.encode(tooltip=tips), boxes.encode(color=colour, tooltip=tips), words, degrees)
    return layers.properties(height=80 * frame[row].nunique() + 120)


def scaling_points(found: Scaling) -> pd.DataFrame:
    """Every size on every network, the figures of `scale --json`."""
    rows = []
    for network in found.as_dict()["networks"]:
        for point in network["points"]:
            run = point.get("run") or {}
            usd = run.get("usd_range") or (None, None)
            fits = point["name"] is not None
            rows.append(
                {
                    "network": network["network"],
                    "GPUs": point["gpus"],
                    "plan": point["name"] or "none fits",
                    "global batch (sequences)": point["global_batch_size"],
                    "tokens/s": point["tokens_per_s"] if fits else None,
                    "tokens/s per GPU": point["tokens_per_s_per_gpu"] if fits else None,
                    "efficiency (%)": 100 * point["efficiency"] if fits else None,
                    "exposed communication (% of step)": 100 * point["exposed_communication_share"] if fits else None,
                    "days": run.get("days"),
                    "cost from (USD)": usd[0],
                    "cost to (USD)": usd[1],
                }
            )
    return pd.DataFrame(rows)


def curve(frame: pd.DataFrame, measure: str, *, log: bool) -> style.Drawing:
    """A figure against the number of GPUs, a line for each network, named at its end."""
    known = frame[frame[measure].notna()]
    names = list(dict.fromkeys(frame["network"]))
    scale = alt.Scale(domain=names, range=list(SERIES[: len(names)]))
    base = alt.Chart(known).encode(
        x=alt.X(
            "GPUs:Q", scale=alt.Scale(type="log", base=2), axis=alt.Axis(format=",d", values=sorted(set(frame["GPUs"])))
        ),
        y=alt.Y(
            f"{measure}:Q",
            scale=alt.Scale(type="log", nice=False) if log else alt.Scale(zero=True),
            axis=alt.Axis(format="~s"),
        ),
        color=alt.Color("network:N", scale=scale, legend=style.legend(columns=3, widest=95, lines=True)),
        strokeDash=alt.StrokeDash("network:N", sort=names, legend=style.legend(columns=3, widest=95, lines=True)),
        tooltip=[
            *style.tips("network", "GPUs", "plan", digits=",d"),
            *(alt.Tooltip(name, format=",.4g") for name in ("tokens/s", "tokens/s per GPU", "efficiency (%)")),
            alt.Tooltip("exposed communication (% of step)", format=".1f"),
        ],
    )
    return alt.layer(base.mark_line(strokeWidth=2), base.mark_circle(size=60, opacity=1)).properties(height=300)
