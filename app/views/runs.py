"""Panels of What fits: scaling over networks, the fewest GPUs, the largest job, and what a whole run takes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd
import streamlit as st

from app import answers_at_scale as scale
from app import ui
from app.charts import sizes
from app.fields import names
from app.inputs import Inputs
from app.state import value, write_link
from planner import format_seconds

SIZES = ("8..64", "8..256", "8..1024", "8..4096", "8..16384")
SOLVES = {"seq-len": "sequence", "micro-batch": "micro-batch", "global-batch": "global batch", "params": "model"}


@ui.panel
def scaling(asked: Inputs) -> None:
    """Speed and efficiency against the number of GPUs, on several networks."""
    left, middle, right = st.columns([3, 1, 1])
    left.multiselect("Networks", names("networks"), key="networks", on_change=write_link, max_selections=6)
    middle.selectbox("GPUs", SIZES, key="sizes", on_change=write_link)
    right.selectbox("Batch", ("strong", "weak"), key="batch_grows", on_change=write_link, format_func=_batch_words)
    with ui.guarded():
        found = scale.scaled(asked, tuple(value("networks")), value("sizes"), value("batch_grows") == "weak")
        st.markdown(f"##### {ui.plain(found.sentence)}")
        frame = sizes.scaling_points(found)
        columns = st.columns(2)
        shown = [("tokens/s", True), ("efficiency (%)", False)]
        if frame["days"].notna().any():
            shown += [("days", True), ("cost from (USD)", False)]
        for place, (measure, log) in enumerate(shown):
            with columns[place % 2]:
                st.markdown(f"**{measure[0].upper()}{measure[1:]}**")
                name = f"scaling_{measure.split()[0].replace('/', '_per_')}"
                ui.chart(sizes.curve(frame, measure, log=log), frame, name)
        rows = [
            {"network": each.network, "every doubling pays up to (GPUs)": each.pays, "more nodes": each.crossover_words}
            for each in found.networks
        ]
        ui.table(pd.DataFrame(rows))
        with st.expander("All sizes"):
            ui.table(frame)
        ui.command(asked.shown(found.command))
    if not asked.choices.tokens:
        st.caption("Tokens of the whole run, at the left, add days and money.")


def _batch_words(name: str) -> str:
    return "stays (strong)" if name == "strong" else "grows (weak)"


@ui.panel
def fewest(asked: Inputs) -> None:
    """The fewest GPUs of each kind that hold the model, or that finish in time."""
    left, right = st.columns([3, 1])
    left.multiselect("GPUs compared", names("gpus"), key="compared_gpus", on_change=write_link, max_selections=12)
    right.number_input("Days at most", 0.1, 1e4, key="days", placeholder="any", on_change=write_link)
    with ui.guarded():
        found = scale.fewest(asked, tuple(value("compared_gpus")), value("days"))
        st.markdown(f"##### {ui.plain(found.sentence)}")
        ui.table(_counts(found))
        ui.command(asked.shown(found.command))


def _counts(found: Any) -> pd.DataFrame:
    rows = []
    for each in found.as_dict()["accelerators"]:
        plan = each["in_time"] if found.days else each["fewest"]
        run = (plan or {}).get("run") or {}
        smaller = each["next_smaller"]
        changes = ", ".join(change["options"] for change in smaller["fits_with"])
        rows.append(
            {
                "GPU": each["accelerator"],
                "GPUs": plan["gpus"] if plan else None,
                "plan": plan["name"] if plan else each["reason"],
                "memory per GPU (GiB)": plan["peak_memory_gib"] if plan else None,
                "step time (s)": plan["step_time_s"] if plan else None,
                "tokens/s": plan["tokens_per_s"] if plan else None,
                "days": run.get("days"),
                "next smaller": f"{smaller['gpus']} with {changes}" if smaller["gpus"] and changes else "",
            }
        )
    return pd.DataFrame(rows)


@ui.panel
def largest(asked: Inputs) -> None:
    """The largest sequence, batch, micro-batch or model that fits, and the fastest."""
    st.segmented_control("Largest", SOLVES, key="solve", on_change=write_link, format_func=SOLVES.__getitem__)
    with ui.guarded():
        found = scale.greatest(asked, value("solve") or "seq-len")
        st.markdown(f"##### {ui.plain(found.sentence)}")
        rows = [
            {
                found.solved.words: each["value"],
                "fits": "yes" if each["fits"] else "no",
                "plan": each.get("name", ""),
                "tokens/s": each.get("tokens_per_s"),
                "MFU (%)": 100 * each["mfu"] if each["fits"] else None,
                "memory per GPU (GiB)": each["peak_memory_gib"] if each["fits"] else each["least_memory_gib"],
                "step time (s)": each.get("step_time_s"),
            }
            for each in (point.as_dict() for point in found.shown)
        ]
        frame = pd.DataFrame(rows)
        ui.table(frame)
        ui.command(asked.shown(found.command))


@ui.panel
def whole_run(asked: Inputs) -> None:
    """Days, money and energy of a run, with failures and checkpoints."""
    tokens = asked.choices.tokens or "1T"
    if not asked.choices.tokens:
        st.caption("For 1T tokens; the number of the whole run's is at the left.")
    with ui.guarded():
        found = scale.whole_run(replace(asked, choices=replace(asked.choices, tokens=tokens)))
        st.markdown(f"##### {ui.plain(found.sentence)}")
        report = found.as_dict()
        points = report["checkpoints"]
        without, failing = report["without_failures"], report["with_failures"]
        low, high = report["predicted_days"]
        values = [
            ("Days", f"{failing['days']:,.3g}", f"{low:,.3g} to {high:,.3g}"),
            ("Without failures", f"{without['days']:,.3g}", f"{without['gpu_hours']:,.0f} GPU-hours"),
            ("Checkpoint", f"{points['size_gb']:,.0f} GB", f"{format_seconds(points['write_s'])} to write"),
            ("Goodput", f"{found.checkpoints.goodput:.1%}", f"every {format_seconds(found.checkpoints.interval)}"),
        ]
        ui.figures(values)
        rows = [
            {
                "run": name,
                "days": run["days"],
                "GPU-hours": run["gpu_hours"],
                "rent from (USD)": (run["usd_range"] or (None, None))[0],
                "rent to (USD)": (run["usd_range"] or (None, None))[1],
                "energy (MWh)": run["energy_mwh"],
                "energy (USD)": run["energy_usd"],
            }
            for name, run in (("without failures", without), ("with failures", failing))
        ]
        frame = pd.DataFrame(rows)
        ui.table(frame)
        st.caption(f"Assumed: {ui.plain('; '.join(report['assumed']))}")
        ui.command(asked.shown(found.command))
