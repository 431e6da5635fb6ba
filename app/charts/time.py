"""A step drawn: where its time goes, and what each axis of communication shows of itself."""

from __future__ import annotations

import altair as alt
import pandas as pd

from app.charts import style
from app.palette import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY
from planner import PlanTraffic, RankedPlan

KINDS = {
    "compute": BLUE,
    "memory bandwidth": SKY,
    "communication": ORANGE,
    "pipeline bubble": GREY,
    "optimizer": GREEN,
    "host and rest": PURPLE,
}
KIND_OF = {
    **dict.fromkeys(("matmul", "attention", "head", "recompute"), "compute"),
    "elementwise": "memory bandwidth",
    **dict.fromkeys(("tp_exposed", "cp_exposed", "ep_exposed", "pp_exposed", "dp_exposed"), "communication"),
    "bubble": "pipeline bubble",
    "optimizer": "optimizer",
}


PARTS = ["exposed", "hidden"]


def kind_of(term: str) -> str:
    """What keeps a rank busy in a term of the step time."""
    return KIND_OF.get(term, "host and rest")


def terms(ranked: RankedPlan) -> pd.DataFrame:
    """Terms that take time, largest first."""
    return pd.DataFrame(
        [
            {
                "term": each.term.title,
                "kind": kind_of(each.name),
                "time (s)": each.value,
                "share (%)": 100 * each.share,
                "words": f"{100 * each.share:.1f} %",
            }
            for each in ranked.time_terms
            if each.value > 0
        ]
    )


def breakdown(ranked: RankedPlan) -> tuple[style.Drawing, pd.DataFrame]:
    """A bar for each term."""
    frame = terms(ranked)
    base = alt.Chart(frame).encode(
        y=style.rows("term"), x=alt.X("time (s):Q"), tooltip=style.tips("term", "kind", "time (s)", "share (%)")
    )
    used = [kind for kind in KINDS if kind in set(frame["kind"])]
    scale = alt.Scale(domain=used, range=[KINDS[kind] for kind in used])
    bars = base.mark_bar(size=16).encode(color=alt.Color("kind:N", scale=scale, legend=style.legend()))
    words = base.mark_text(align="left", dx=5, color="gray").encode(text="words:N")
    drawing = alt.layer(bars, words).properties(height=style.height(len(frame), names=len(used)))
    return drawing, frame.drop(columns="words")


def communication(traffic: PlanTraffic) -> tuple[style.Drawing, pd.DataFrame]:
    """Of each axis: what the step waits for, what it takes from the compute beside it, and what is hidden."""
    found = traffic.as_dict()
    exposed = {each["communication"]: each for each in found["hiding"]}
    rows = []
    for axis in found["axes"]:
        shown = exposed.get(axis["axis"])
        waited = shown["exposed_s"] if shown else 0.0
        parts = zip(PARTS, (waited, max(axis["busy_s"] - waited, 0.0)), strict=True)
        rows += [
            {
                "axis": f"{axis['axis']} ({axis['ranks']} ranks)",
                "part": part,
                "time (s)": seconds,
                "sent per GPU (GB)": axis["sent_gb"],
                "held by": axis["words"],
            }
            for part, seconds in parts
        ]
    frame = pd.DataFrame(rows)
    chart = (
        alt.Chart(frame)
        .mark_bar(size=18)
        .encode(
            y=style.rows("axis", longest=160),
            x=alt.X("time (s):Q", stack="zero"),
            color=alt.Color("part:N", scale=alt.Scale(domain=PARTS, range=[ORANGE, SKY]), legend=style.legend()),
            tooltip=style.tips("axis", "part", "time (s)", "sent per GPU (GB)", "held by"),
        )
        .properties(height=style.height(len(found["axes"]), step=34, names=2))
    )
    return chart, frame
