"""Sides and changes drawn: where the time of each side goes, and what each change would do."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import pandas as pd

from app import ui
from app.charts import style, time
from app.palette import BLUE, ORANGE
from planner import Side, WhatIf

MILLION = 1e6


def times(sides: Sequence[Side]) -> tuple[style.Drawing, pd.DataFrame]:
    """Time of a million tokens of every side that fits, by what keeps a rank busy."""
    rows = [
        {"side": ui.named(side.label), "kind": kind, "time per million tokens (s)": seconds}
        for side in sides
        if side.ranked
        for kind, seconds in _by_kind(side).items()
    ]
    frame = pd.DataFrame(rows)
    used = [kind for kind in time.KINDS if kind in set(frame["kind"])]
    chart = (
        alt.Chart(frame)
        .mark_bar(size=22)
        .encode(
            y=style.rows("side"),
            x=alt.X("time per million tokens (s):Q", stack="zero"),
            color=alt.Color(
                "kind:N",
                sort=used,
                scale=alt.Scale(domain=used, range=[time.KINDS[kind] for kind in used]),
                legend=style.legend(columns=3, widest=130),
            ),
            tooltip=style.tips("side", "kind", "time per million tokens (s)"),
        )
        .properties(height=style.height(frame["side"].nunique(), step=46, names=len(used)))
    )
    return chart, frame


def _by_kind(side: Side) -> dict[str, float]:
    assert side.ranked is not None
    tokens = side.ranked.question.workload.tokens_per_step
    found = dict.fromkeys(time.KINDS, 0.0)
    for each in side.ranked.time_terms:
        found[time.kind_of(each.name)] += MILLION * each.value / tokens
    return {kind: seconds for kind, seconds in found.items() if seconds > 0}


def effects(found: WhatIf) -> tuple[style.Drawing, pd.DataFrame]:
    """Tokens/s that each change gains or loses, with the same plan and with the best one."""
    rows = []
    for row in found.as_dict()["changes"]:
        for which, key in (("same plan", "same_plan"), ("best plan", "best_plan")):
            effect = row[key]
            known = effect["plan"] is not None
            gain = 100 * (effect["tokens_per_s_ratio"] - 1) if known else 0.0
            rows.append(
                {
                    "change": row["change"],
                    "what": which,
                    "tokens/s (%)": gain,
                    "plan": effect.get("name") or "none",
                    "memory (%)": 100 * (effect["peak_memory_ratio"] - 1) if known else None,
                    "cost per token (%)": 100 * (effect["cost_per_token_ratio"] - 1) if known else None,
                    "why not": effect.get("reason", ""),
                    "words": _gain(effect, gain) if known else "none",
                }
            )
    frame = pd.DataFrame(rows)
    base = alt.Chart(frame).encode(
        y=style.rows("change"),
        yOffset=alt.YOffset("what:N", sort=["same plan", "best plan"]),
        x=alt.X("tokens/s (%):Q", title="tokens/s against as it is (%)", scale=alt.Scale(padding=45)),
        tooltip=[*style.tips("change", "what", "plan", "tokens/s (%)", "memory (%)", "cost per token (%)"), "why not"],
    )
    colour = alt.Color(
        "what:N",
        scale=alt.Scale(domain=["same plan", "best plan"], range=[BLUE, ORANGE]),
        legend=style.legend(),
    )
    # The side of a text cannot depend on its value: a layer for each sign.
    right = base.transform_filter("datum['tokens/s (%)'] >= 0").mark_text(align="left", dx=4, color="gray")
    left = base.transform_filter("datum['tokens/s (%)'] < 0").mark_text(align="right", dx=-4, color="gray")
    layers = alt.layer(
        base.mark_bar(size=11).encode(color=colour), right.encode(text="words:N"), left.encode(text="words:N")
    )
    height = style.height(frame["change"].nunique(), step=36, names=2)
    return layers.properties(height=height), frame.drop(columns="words")


def _gain(effect: dict[str, object], gain: float) -> str:
    return f"{gain:+.1f} %{', does not fit' if effect['memory_verdict'] == 'does_not_fit' else ''}"
