"""The ranking drawn: step times with their intervals, and time against memory."""

from __future__ import annotations

import altair as alt
import pandas as pd

from app.charts import style
from app.palette import BLUE, ORANGE, VERMILION
from planner import Recommendation


def intervals(answer: Recommendation) -> tuple[style.Drawing, pd.DataFrame]:
    """Step time of each plan with its 80 % interval."""
    rows = [
        {
            "plan": f"{each['rank']}. {each['name']}",
            "step time (s)": each["step_time_s"],
            "from (s)": each["step_time_interval_s"][0],
            "to (s)": each["step_time_interval_s"][1],
        }
        for each in answer.as_dict()["plans"]
    ]
    frame = pd.DataFrame(rows)
    order = style.rows("plan")
    tips = [alt.Tooltip("plan"), *(alt.Tooltip(name, format=".4g") for name in frame.columns[1:])]
    base = alt.Chart(frame).encode(y=order, tooltip=tips)
    span = base.mark_rule(strokeWidth=3, color=BLUE, opacity=0.45).encode(
        x=alt.X("from (s):Q", title="step time (s), 80 % interval", scale=alt.Scale(zero=False)), x2="to (s):Q"
    )
    points = base.mark_circle(size=90, color=BLUE, opacity=1).encode(x="step time (s):Q")
    return alt.layer(span, points).properties(height=style.height(len(rows), step=22)), frame


def front(answer: Recommendation) -> tuple[style.Drawing, pd.DataFrame]:
    """Plans that no other beats in both time and memory, with the memory that is usable."""
    found = answer.as_dict()
    rows = [
        {"plan": each["name"], "step time (s)": each["step_time_s"], "memory per GPU (GiB)": each["peak_memory_gib"]}
        for each in found["front"]
    ]
    frame = pd.DataFrame(rows)
    usable = found["plans"][0]["usable_memory_gib"]
    encoded = alt.Chart(frame).encode(
        x=alt.X("memory per GPU (GiB):Q", scale=alt.Scale(zero=True)),
        y=alt.Y("step time (s):Q", scale=alt.Scale(zero=False)),
        tooltip=["plan", alt.Tooltip("step time (s)", format=".4g"), alt.Tooltip("memory per GPU (GiB)", format=".1f")],
    )
    points = encoded.mark_line(point=alt.OverlayMarkDef(size=70, color=ORANGE, opacity=1), color=ORANGE, opacity=0.6)
    limit = pd.DataFrame([{"usable": usable, "words": f"usable {usable:.1f} GiB"}])
    rule = (
        alt.Chart(limit)
        .mark_rule(color=VERMILION, strokeDash=[5, 4], strokeWidth=2)
        .encode(x=alt.X("usable:Q", title="memory per GPU (GiB)"))
    )
    label = (
        alt.Chart(limit)
        .mark_text(color=VERMILION, align="right", dx=-5, y=8)
        .encode(x=alt.X("usable:Q", title="memory per GPU (GiB)"), text="words")
    )
    return alt.layer(points, rule, label).properties(height=315), frame
