"""Own runs from their logs: step time and memory that were measured, beside what was to be expected."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from app import ui, uploads
from app.inputs import Inputs
from app.state import value
from planner import StepsAsked, import_steps

MOST_FILES = 8


@ui.panel
def draw(asked: Inputs) -> None:
    """The panel."""
    st.caption(
        "Logs of Megatron-LM, torchtitan and others, records of planner's own trainer, traces of torch's profiler."
    )
    left, right = st.columns(2)
    files = left.file_uploader("Logs and traces", accept_multiple_files=True, key="step_logs", max_upload_size=4)
    plan = right.file_uploader("plan.json or settings of the runs", key="steps_plan", max_upload_size=1)
    st.checkbox("Take model and cluster from the left", key="steps_left")
    if not files:
        st.info("No log yet: the prediction will stand beside what it measured.", icon=":material/upload_file:")
        return
    given: dict[str, Any] = {}
    if plan:
        given["plan"] = uploads.stored(plan.getvalue(), plan.name)
    if value("steps_left"):
        given |= {"model": asked.model_argument, "cluster": asked.cluster_argument}
    found = import_steps(
        [uploads.stored(file.getvalue(), file.name) for file in files[:MOST_FILES]], StepsAsked(**given)
    )
    ui.table(pd.DataFrame([_row(run) for run in found.as_dict()["runs"]]))
    for reason in found.failed:
        st.caption(f":material/info: {ui.plain(ui.named(reason))}")
    options = "".join(f" --{name} {ui.named(str(each))}" for name, each in given.items())
    ui.command(f"planner import steps {' '.join(uploads.plain(file.name) for file in files[:MOST_FILES])}{options}")


def _row(run: dict[str, Any]) -> dict[str, Any]:
    """One run: what was measured beside what was predicted."""
    low, high = run["interval_s"] or (None, None)
    kind = next((kind for kind in ("reserved", "allocated", "device") if kind in run["peak_memory_gib"]), None)
    return {
        "file": ui.named(run["file"]),
        "plan": run["plan"] or "not told",
        "steps counted": run["steps_counted"],
        "step time (s)": run["step_time_s"],
        "predicted (s)": run["predicted_step_time_s"],
        "80 % from (s)": low,
        "80 % to (s)": high,
        "off (%)": None if run["error"] is None else 100 * run["error"],
        "peak memory (GiB)": run["peak_memory_gib"][kind] if kind else None,
        "predicted (GiB)": run["predicted_peak_memory_gib"],
        "tokens/s": run["tokens_per_s"],
        "not told": ", ".join(run["missing"]),
    }
