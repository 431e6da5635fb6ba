"""What the pages about one plan share: which plan, and its sentence."""

from __future__ import annotations

import streamlit as st

from app import answers, ui
from app.inputs import Inputs
from app.state import value
from planner import NoFeasiblePlan, RankedPlan, format_bytes, format_seconds


def plan_choice(asked: Inputs) -> RankedPlan:
    """Draw the choice of a ranked plan; the plan. Where nothing fits it is the smallest, and a line says so."""
    found = answers.recommendation(asked)
    if isinstance(found, NoFeasiblePlan):
        st.warning(f"{ui.plain(ui.words(found))}. Below, the plan that needs least memory.", icon=":material/block:")
        return answers.chosen(asked, 1)
    plans = found.plans
    st.session_state["plan"] = min(value("plan"), len(plans))
    st.selectbox(
        "Plan",
        range(1, len(plans) + 1),
        key="plan",
        format_func=lambda number: _words(plans[number - 1]),
        help="The ten best; the Plan page ranks them.",
    )
    return plans[value("plan") - 1]


def number() -> int:
    """The rank of the plan that is looked at."""
    return int(value("plan"))


def _words(ranked: RankedPlan) -> str:
    tie = " ~" if ranked.tie else ""
    return f"{ranked.rank}{tie}. {ranked.name}: {format_seconds(ranked.step_time)}, {format_bytes(ranked.peak)} per GPU"
