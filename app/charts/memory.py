"""Memory drawn: what each pipeline stage holds at its fullest moment, how that goes over a step, and what dials do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt
import pandas as pd

from app.charts import style
from app.palette import MEMORY, ORANGE, SERIES, VERDICTS, VERMILION
from planner import FitReport, RankedPlan, memory_timeline

TIGHT = 0.85
"""Share of usable memory from which a plan is tight (planner's verdict)."""


def roles(ranked: RankedPlan) -> list[str]:
    """Pipeline stages that differ: the first, the fullest between, the last."""
    stages = int(ranked.plan.pp)
    return ["first", "middle", "last"] if stages > 2 else ["first", "last"] if stages > 1 else ["first"]


def stage_name(role: str, ranked: RankedPlan) -> str:
    """A stage for people."""
    return "every rank" if int(ranked.plan.pp) == 1 else f"{role} stage"


def items(report: FitReport) -> pd.DataFrame:
    """Items of each stage at its fullest moment."""
    ranked, asked = report.ranked, report.ranked.question
    titles = {each.name: each.term.title for each in ranked.memory_terms}
    uses = memory_timeline(asked.model, ranked.plan, asked.workload, asked.stack)
    rows: list[dict[str, Any]] = []
    for role in roles(ranked):
        mine = {moment: use for (stage, moment), use in uses.items() if stage.name.lower() == role}
        moment, use = max(mine.items(), key=lambda pair: float(pair[1].peak))
        for order, name in enumerate(MEMORY):
            rows.append(
                {
                    "stage": stage_name(role, ranked),
                    "at": moment.name.lower().replace("_", " "),
                    "item": titles[name],
                    "name": name,
                    "order": order,
                    "memory per GPU (GiB)": float(getattr(use, name)) / 2**30,
                }
            )
    return pd.DataFrame(rows)


def stages(report: FitReport) -> tuple[style.Drawing, pd.DataFrame]:
    """Stacked bars of every stage with the limit, and from where on a plan is tight."""
    frame = items(report)
    titles = dict(zip(frame["name"], frame["item"], strict=True))
    colours = alt.Scale(domain=[titles[name] for name in MEMORY], range=list(MEMORY.values()))
    bars = (
        alt.Chart(frame)
        .mark_bar(size=34)
        .encode(
            y=style.rows("stage"),
            x=alt.X("memory per GPU (GiB):Q", stack="zero"),
            color=alt.Color("item:N", scale=colours, sort=None, legend=style.legend()),
            order="order:Q",
            tooltip=style.tips("stage", "item", "at", "memory per GPU (GiB)"),
        )
    )
    limit = _limit(report.ranked.usable / 2**30)
    count = frame["stage"].nunique()
    return alt.layer(bars, limit).properties(height=style.height(count, step=56, names=9)), frame.drop(
        columns=["name", "order"]
    )


def _limit(usable: float) -> style.Drawing:
    """Lines at what is usable and at what is tight, each with its words above the bars."""
    marks = ((usable, f"usable {usable:.1f} GiB", VERMILION, -6), (TIGHT * usable, "tight", ORANGE, -19))
    layers = []
    for at, words, colour, above in marks:
        where = alt.Chart(pd.DataFrame([{"at": at, "words": words}])).encode(
            x=alt.X("at:Q", title="memory per GPU (GiB)"),
            tooltip=["words", alt.Tooltip("at", format=".1f", title="GiB")],
        )
        text = where.mark_text(align="right", dx=6, color=colour, fontWeight="bold")
        layers += [
            where.mark_rule(strokeDash=[6, 4], strokeWidth=2, color=colour),
            text.encode(text="words:N", y=alt.value(above)),
        ]
    return alt.layer(*layers)


def moments(report: FitReport) -> tuple[style.Drawing, pd.DataFrame]:
    """Peak of every stage at each moment of a step."""
    timeline: Mapping[str, Mapping[str, float]] = report.as_dict()["timeline_gib"]
    rows = [
        {
            "stage": stage_name(role, report.ranked),
            "moment": moment.replace("_", " "),
            "memory per GPU (GiB)": size,
        }
        for role in roles(report.ranked)
        for moment, size in timeline[role].items()
    ]
    frame = pd.DataFrame(rows)
    chart = (
        alt.Chart(frame)
        .mark_line(point=alt.OverlayMarkDef(size=60), strokeWidth=2)
        .encode(
            x=alt.X("moment:N", sort=None, title=None, axis=alt.Axis(labelAngle=0, labelLimit=90)),
            y=alt.Y("memory per GPU (GiB):Q", scale=alt.Scale(zero=True)),
            color=alt.Color(
                "stage:N", sort=None, scale=alt.Scale(range=list(SERIES)), legend=style.legend(columns=3, widest=95)
            ),
            tooltip=style.tips("stage", "moment", "memory per GPU (GiB)"),
        )
        .properties(height=320)
    )
    return chart, frame


def dials(report: FitReport) -> tuple[style.Drawing, pd.DataFrame]:
    """What each single change would give: memory as bars, coloured by verdict, step time beside it."""
    now = report.ranked
    rows = [
        {
            "change": each["change"],
            "memory per GPU (GiB)": each["peak_memory_gib"],
            "fits": each["memory_verdict"].replace("_", " "),
            "step time (s)": each["step_time_s"],
            "option": each["options"],
            "words": f"{each['peak_memory_gib']:.1f} GiB, step {each['step_time_s'] / now.step_time - 1:+.0%}",
        }
        for each in report.as_dict()["dials"]
    ]
    frame = pd.DataFrame(rows)
    base = alt.Chart(frame).encode(y=style.rows("change"))
    bars = base.mark_bar(size=16).encode(
        x=alt.X("memory per GPU (GiB):Q"),
        color=alt.Color(
            "fits:N",
            scale=alt.Scale(domain=list(VERDICTS), range=list(VERDICTS.values())),
            legend=style.legend(columns=3),
        ),
        tooltip=style.tips("change", "option", "fits", "memory per GPU (GiB)", "step time (s)"),
    )
    words = base.mark_text(align="left", dx=5, color="gray").encode(x="memory per GPU (GiB):Q", text="words:N")
    drawing = alt.layer(bars, words, _limit(now.usable / 2**30))
    return drawing.properties(height=style.height(len(rows), names=3)), frame.drop(columns="words")
