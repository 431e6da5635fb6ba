"""Time: where a step goes, what communication shows of itself, and the step played action by action."""

from __future__ import annotations

import gzip
import json
from functools import partial

import pandas as pd
import streamlit as st

from app import answers, ui
from app.charts import time, timeline
from app.inputs import Inputs
from app.state import value, write_link
from app.views import common
from planner import PlannerError, RankedPlan, SimulatedStep, choice_names, chrome_trace, format_seconds

MOST_ACTIONS = 40_000
"""Passes that are played within seconds."""


def draw(asked: Inputs) -> None:
    """The page."""
    ranked = common.plan_choice(asked)
    _figures(ranked)
    left, right = st.columns([3, 2])
    with left:
        st.markdown("**Where a step goes**")
        ui.chart(*time.breakdown(ranked), "step_time_terms")
    with right:
        st.markdown("**Communication by axis**")
        _communication(asked)
    _played(asked)


def _figures(ranked: RankedPlan) -> None:
    frame, total = time.terms(ranked), ranked.step_time
    by_kind = frame.groupby("kind")["time (s)"].sum()
    low, high = (format_seconds(float(each)) for each in (ranked.interval.low, ranked.interval.high))
    st.markdown(f"##### {ui.plain(ranked.words)}: {format_seconds(total)} per step ({low} to {high})")
    values = [
        (name[0].upper() + name[1:], f"{by_kind.get(name, 0.0) / total:.1%}", format_seconds(by_kind.get(name, 0.0)))
        for name in time.KINDS
    ]
    ui.figures(values)


@ui.panel
def _communication(asked: Inputs) -> None:
    traffic = answers.traffic(asked, common.number())
    if not traffic.axes:
        st.info("Nothing is sent: every group is of one rank.")
        return
    ui.chart(*time.communication(traffic), "communication_by_axis")
    st.caption("Exposed: what the step waits for. Hidden: the rest of the time that the axis keeps its link busy.")


@ui.panel
def _played(asked: Inputs) -> None:
    """The simulator's step, of the plan's own schedule or another."""
    with st.container(border=True):
        st.markdown("**One step, played**")
        left, right = st.columns(2)
        schedules = ["", *choice_names()["schedule"]]
        left.selectbox(
            "Schedule", schedules, key="schedule", format_func=lambda name: name or "the plan's", on_change=write_link
        )
        right.slider("Jitter of each task (%)", 0, 30, key="jitter", on_change=write_link)
        if _actions(asked) > MOST_ACTIONS:
            st.info(f"{_actions(asked):,} actions are too many to play on a page.", icon=":material/block:")
            ui.command(_command(asked), "The command line plays any number")
            return
        try:
            step = answers.played(asked, common.number(), value("schedule"), value("jitter") / 100)
        except PlannerError as error:
            st.info(ui.plain(ui.words(error)), icon=":material/block:")
            return
        _step(asked, step)


def _actions(asked: Inputs) -> int:
    """Forward and backward passes of the plan's own schedule."""
    plan = answers.plan_values(asked, common.number())
    count: int = 2 * plan["pp"] * plan["virtual_stages"] * plan["num_microbatches"]
    return count


def _step(asked: Inputs, step: SimulatedStep) -> None:
    found, name = step.as_dict(), f"{step.schedule}"
    bubble = found["bubble_fraction"]
    st.caption(
        f"{name}, {found['num_microbatches']} micro-batches on {len(found['ranks'])} pipeline ranks: "
        f"{format_seconds(found['makespan_s'])}, {bubble:.1%} of it idle."
    )
    everything = answers.slices(asked, common.number(), value("schedule"), value("jitter") / 100)
    count = len(found["ranks"])
    ranks = timeline.drawn_ranks(everything)
    if count > len(ranks):
        ranks = st.multiselect("Pipeline ranks", range(count), default=ranks, key="shown_ranks", max_selections=16)
    if ranks:
        drawing, frame, left_out = timeline.timeline(everything, ranks)
        ui.chart(drawing, frame, "timeline")
        if left_out:
            st.caption("Too many slices to draw all: compute only, from the step's start. The trace has everything.")
    st.download_button(
        "Trace for Perfetto (ui.perfetto.dev)",
        partial(_trace, step),
        f"{name}.trace.json.gz",
        "application/gzip",
        key="trace",
        icon=":material/download:",
        on_click="ignore",
    )
    with st.expander("Ranks"):
        ui.table(_ranks(found))
    ui.command(_command(asked))


def _trace(step: SimulatedStep) -> bytes:
    return gzip.compress(json.dumps(chrome_trace(step.simulation), separators=(",", ":")).encode(), 5, mtime=0)


def _ranks(found: dict[str, list[dict[str, float]]]) -> pd.DataFrame:
    names = {
        "rank": "rank",
        "busy_s": "computes (s)",
        "exposed_s": "waits for peers (s)",
        "idle_s": "idle (s)",
        "peak_in_flight": "micro-batches in flight",
        "peak_memory_gib": "peak memory (GiB)",
    }
    return pd.DataFrame([{names[key]: each[key] for key in names} for each in found["ranks"]]).round(4)


def _command(asked: Inputs) -> str:
    text = answers.plan_command(asked, common.number(), "simulate")
    if value("schedule"):
        text += f" --schedule {value('schedule')}"
    if value("jitter"):
        text += f" --jitter {value('jitter') / 100:g}"
    return text
