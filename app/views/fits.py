"""What fits: a map of sizes, scaling over networks, the fewest GPUs, the largest job, and what a whole run takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from time import perf_counter

import streamlit as st

from app import answers, ui
from app import answers_at_scale as scale
from app.charts import sizes
from app.fields import MAP_ROWS, OWN, PANELS, names
from app.inputs import Inputs
from app.state import value, write_link
from app.views import runs
from planner import Side

LARGEST_CLUSTER = 16_384
"""GPUs up to which columns are added to those at the left."""
PATIENCE = 15.0
"""Seconds after which a map is shown as far as it is found."""
FACTORS = (0.25, 0.5, 1, 2, 4, 8)
"""Of the nodes at the left, those of the map's columns."""


def draw(asked: Inputs) -> None:
    """The page: one panel at a time, so that only what is looked at is computed."""
    st.segmented_control(
        "Panel", PANELS, key="panel", label_visibility="collapsed", on_change=write_link, format_func=PANELS.__getitem__
    )
    panels: dict[str, Callable[[Inputs], None]] = {
        "map": _map,
        "scaling": runs.scaling,
        "fewest": runs.fewest,
        "largest": runs.largest,
        "run": runs.whole_run,
    }
    with ui.guarded():
        panels[value("panel") or "map"](asked)


@ui.panel
def _map(asked: Inputs) -> None:
    left, right = st.columns(2)
    left.selectbox("Rows", MAP_ROWS, key="map_rows", on_change=write_link)
    right.selectbox("Colour", list(sizes.MEASURES), key="map_colour", on_change=write_link)
    row = value("map_rows")
    questions = _questions(asked, row)
    found = _searched(questions)
    frame = sizes.cells(found, row)
    fit = int((frame["why not"] == "").sum())
    st.markdown(f"##### {fit} of {len(frame)} sizes fit; each cell has its best plan")
    if len(found) < len(questions):
        st.button(f"Search the other {len(questions) - len(found)} sizes", key="map_more", type="primary")
    st.session_state["_map"] = frame
    ui.chart(sizes.size_map(frame, row, value("map_colour")), frame.drop(columns="degrees"), "what_fits")
    unfit = frame[frame["why not"] != ""]
    if len(unfit):
        with st.expander(f"Why {len(unfit)} sizes do not fit"):
            ui.table(unfit[["GPUs", row, "why not"]])
    st.caption("A cell is the first plan of this command, with its own number of nodes and its own row's value:")
    ui.command(asked.shown(answers.question(asked).command()))


def _questions(asked: Inputs, row: str) -> dict[tuple[int, int], Inputs]:
    """GPUs and row -> the question of that cell, from the smallest on."""
    usual = answers.question(asked)
    each = 1 if asked.hardware in names("gpus") else usual.cluster.node.gpus_per_node
    counts = sorted({max(1, int(asked.count * factor)) for factor in FACTORS})
    counts = [count for count in counts if count <= max(asked.count, LARGEST_CLUSTER // each)]
    if asked.hardware == OWN:
        counts, each = [1], usual.cluster.world_size
    elif each == 1:
        counts = [count for count in counts if count <= 8] or [asked.count]
    job = usual.workload
    base = job.seq_len if row == MAP_ROWS[0] else job.global_batch_size
    values = sorted({max(1, int(base * factor)) for factor in (0.5, 1, 2, 4, 8, 16)})
    found = {}
    for size in values:
        changed = {"seq_len": size} if row == MAP_ROWS[0] else {"global_batch_size": str(size)}
        for count in counts:
            found[count * each, size] = replace(asked, count=count, choices=replace(asked.choices, **changed))
    return found


def _searched(questions: dict[tuple[int, int], Inputs]) -> dict[tuple[int, int], Side]:
    """The best plan of every cell, with progress while they are new; of as many as are found in a while."""
    found: dict[tuple[int, int], Side] = {}
    place, begin = st.empty(), perf_counter()
    for number, (at, question) in enumerate(questions.items(), start=1):
        if found and perf_counter() - begin > PATIENCE:
            break
        place.progress(number / len(questions), f"Size {number} of {len(questions)}")
        found[at] = scale.cell(question)
    place.empty()
    return found
