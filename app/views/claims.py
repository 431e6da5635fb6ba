"""Claims of practitioners' guides with their thresholds as sliders, judged by planner."""

from __future__ import annotations

from typing import Any

import streamlit as st

from app import ui
from app.claims import CLAIMS, Verdict
from app.inputs import Inputs
from app.state import value, write_link


@ui.panel
def draw(_asked: Inputs) -> None:
    """The panel: one claim at a time."""
    st.selectbox("Claim", CLAIMS, key="claim", on_change=write_link, format_func=lambda name: CLAIMS[name].words)
    name = value("claim")
    claim = CLAIMS[name]
    columns = st.columns(len(claim.dials))
    for column, (each, dial) in zip(columns, claim.dials.items(), strict=True):
        column.select_slider(dial.name, dial.values, key=f"claim_{name}_{each}", on_change=write_link)
    chosen = {each: value(f"claim_{name}_{each}") for each in claim.dials}
    with ui.guarded():
        found = _verdict(name, tuple(chosen.items()))
        says = st.success if found.holds else st.warning
        says(f"**{'Holds' if found.holds else 'Does not hold'}:** {ui.plain(found.words)}.")
        ui.command("\n".join(found.commands))
    st.caption("Claims as guides make them, in our words. Turn the sliders to see where they begin to hold.")


@st.cache_resource(max_entries=256, show_spinner="Computing")
def _verdict(name: str, chosen: tuple[tuple[str, Any], ...]) -> Verdict:
    return CLAIMS[name].judge(**dict(chosen))
