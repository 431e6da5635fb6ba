"""Predicted against measured: a point for each run, on the diagonal where the two are equal."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from app.charts import style
from app.palette import SERIES
from planner import RunsReport

QUANTITIES = {
    "step time (s)": ("predicted_step_time_s", "measured_step_time_s", "interval_s"),
    "peak memory (GiB)": ("predicted_peak_memory_gib", "measured_peak_memory_gib", "memory_interval_gib"),
}
"""What is compared -> keys of a row of `validate --json`."""
MOST_SOURCES = len(SERIES) - 1


def points(report: RunsReport, quantity: str) -> pd.DataFrame:
    """Runs of which this was predicted and measured."""
    predicted, measured, interval = QUANTITIES[quantity]
    rows = [
        {
            "run": row["id"],
            "source": row["source_id"] or "(none)",
            "measured": row[measured],
            "predicted": row[predicted],
            "80 % from": row[interval][0] if row[interval] else row[predicted],
            "80 % to": row[interval][1] if row[interval] else row[predicted],
            "error (%)": 100 * (row[predicted] / row[measured] - 1),
            "level": row["level"],
        }
        for row in report.as_dict()["rows"]
        if row[predicted] and row[measured] and not row["oom"]
    ]
    return pd.DataFrame(rows)


def scatter(frame: pd.DataFrame, quantity: str) -> style.Drawing:
    """The points with their intervals, by source; sources beyond the palette are one."""
    frame = frame.copy()
    largest = list(frame["source"].value_counts().index[:MOST_SOURCES])
    frame["by"] = frame["source"].where(frame["source"].isin(largest), "others")
    named = [*largest, *(["others"] if (frame["by"] == "others").any() else [])]
    low = 0.8 * float(frame[["measured", "80 % from"]].min().min())
    high = 1.25 * float(frame[["measured", "80 % to"]].max().max())
    scale = alt.Scale(type="log", domain=[low, high], nice=False)
    across = alt.X("measured:Q", scale=scale, title=f"measured {quantity}")

    def up(field: str) -> alt.Y:
        return alt.Y(f"{field}:Q", scale=scale, title=f"predicted {quantity}")

    colour = alt.Color(
        "by:N", scale=alt.Scale(domain=named, range=list(SERIES[: len(named)])), legend=style.legend(columns=2)
    )
    tips: list[Any] = [
        *style.tips("run", "source", "level"),
        *(alt.Tooltip(name, format=".4g") for name in ("measured", "predicted", "80 % from", "80 % to")),
        alt.Tooltip("error (%)", format="+.1f"),
    ]
    base = alt.Chart(frame).encode(x=across, color=colour, tooltip=tips)
    spans = base.mark_rule(opacity=0.35, strokeWidth=1.5).encode(y=up("80 % from"), y2="80 % to:Q")
    dots = base.mark_circle(size=55, opacity=0.85).encode(y=up("predicted"))
    ends = pd.DataFrame({"measured": [low, high], "predicted": [low, high]})
    equal = alt.Chart(ends).mark_line(color="gray", strokeDash=[5, 4]).encode(x=across, y=up("predicted"))
    return alt.layer(equal, spans, dots).properties(height=440 + style.LEGEND_ROW * -(-len(named) // 2))
