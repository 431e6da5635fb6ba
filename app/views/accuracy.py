"""Accuracy and calibration: predictions beside measured runs, what the profile rests on, and claims of guides."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from app import answers_at_scale as scale
from app import ui, uploads
from app.charts import accuracy
from app.inputs import Inputs
from app.state import value, write_link
from app.views import claims, logs, profile

PUBLISHED = Path(__file__).parents[1] / "published_runs.csv"


def draw(asked: Inputs) -> None:
    """The page, one panel at a time."""
    panels: dict[str, tuple[str, Callable[[Inputs], None]]] = {
        "runs": ("Runs", _runs),
        "logs": ("Logs", logs.draw),
        "profile": ("Profile", profile.draw),
        "claims": ("Claims", claims.draw),
    }
    st.segmented_control(
        "Panel",
        panels,
        key="accuracy_panel",
        label_visibility="collapsed",
        on_change=write_link,
        format_func=lambda name: panels[name][0],
    )
    with ui.guarded():
        panels[value("accuracy_panel") or "runs"][1](asked)


@ui.panel
def _runs(_asked: Inputs) -> None:
    left, right = st.columns([3, 1])
    label = "Own runs (CSV, columns as planner validate takes them)"
    file = left.file_uploader(label, ["csv"], key="runs_file", max_upload_size=4)
    right.selectbox("Compared", list(accuracy.QUANTITIES), key="quantity", on_change=write_link)
    with ui.guarded():
        path = uploads.stored(file.getvalue(), file.name) if file else PUBLISHED
        report = scale.scored(str(path), profile.own_profiles())
        if file is None:
            st.caption("Published runs, each predicted from its stated configuration alone; upload your own above.")
        _scores(report)
        quantity = value("quantity")
        frame = accuracy.points(report, quantity)
        if len(frame):
            ui.chart(accuracy.scatter(frame, quantity), frame, "predicted_and_measured")
            st.caption("Dashed: predicted as measured. Bars: 80 % intervals.")
        else:
            st.info(f"No run has a measured {quantity.split(' (')[0]} beside a prediction.", icon=":material/info:")
        _by_source(report)
        _skipped(report)
        ui.command(f"planner validate {PUBLISHED.name if file is None else uploads.plain(file.name)}")
        if file is None:
            st.download_button(
                PUBLISHED.name,
                PUBLISHED.read_bytes(),
                PUBLISHED.name,
                key="published",
                icon=":material/download:",
                on_click="ignore",
            )


def _scores(report: Any) -> None:
    found = report.as_dict()["summary"]
    time, memory = found["overall"]["step_time"], found["overall"]["memory"]
    values = [("Runs predicted", f"{found['predicted']:,}", f"of {found['rows']:,}")]
    for name, each in (("Step time off by", time), ("Memory off by", memory)):
        if each["n"]:
            values.append((name, f"{100 * each['median']:.1f} %", f"9 of 10 within {100 * each['p90']:.0f} %"))
            values.append((f"{name.split(' off')[0]} in interval", f"{each['coverage']:.0%}", "80 % would be right"))
    ui.figures(values)


def _by_source(report: Any) -> None:
    rows = []
    for source, each in report.as_dict()["summary"]["by_source_id"].items():
        time, memory = each["step_time"], each["memory"]
        if time["n"] or memory["n"]:
            rows.append(
                {
                    "source": source or "(none)",
                    "step times": time["n"],
                    "time error, median (%)": 100 * time["median"] if time["n"] else None,
                    "bias (%)": 100 * time["bias"] if time["n"] else None,
                    "memory readings": memory["n"],
                    "memory error, median (%)": 100 * memory["median"] if memory["n"] else None,
                }
            )
    if rows:
        ui.table(pd.DataFrame(rows))


def _skipped(report: Any) -> None:
    reasons = pd.Series([row["skipped"] for row in report.as_dict()["rows"] if row["skipped"]], dtype=str)
    if len(reasons):
        with st.expander(f"{len(reasons)} runs were not predicted"):
            counts = reasons.value_counts()
            ui.table(pd.DataFrame({"why": counts.index, "runs": counts.to_numpy()}))
