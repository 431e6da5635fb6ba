"""Plan: the answer, its evidence, and the files that run it."""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass
from typing import Any

import pandas as pd
import streamlit as st

from app import answers, tables, ui
from app.charts import ranking
from app.inputs import Inputs
from app.state import value, write_link
from planner import NoFeasiblePlan, Recommendation, choice_names, format_bytes, format_seconds


def draw(asked: Inputs) -> None:
    """The page."""
    found = answers.recommendation(asked)
    of = answers.question(asked)
    if isinstance(found, NoFeasiblePlan):
        st.subheader("No plan fits")
        ui.nothing_fits(found)
    else:
        _uneven(asked)
        _answer(found)
        _evidence(asked, found)
        _launch(asked, found)
    ui.command(f"{asked.shown(of.command())} --top {answers.TOP}")
    ui.notes(of.assumed, of.notes)


def _uneven(asked: Inputs) -> None:
    """What uneven work on unequal nodes would give; the rest of the page has all nodes at one pace."""
    found = answers.uneven(asked)
    if found:
        st.info(ui.plain(f"{found.sentence} Below, all nodes at one pace: {found.loss}."), icon=":material/call_split:")
        ui.command(asked.shown(answers.question(asked).command("mixed")), "Every way to use these nodes")


def _answer(found: Recommendation) -> None:
    best, (rate, total, each) = found.best, found.best.rate
    low, high = best.interval.low, best.interval.high
    st.markdown(f"##### {ui.plain(found.sentence)}")
    price, run = best.usd_per_million_tokens, best.run
    values = [
        ("Step time", format_seconds(best.step_time), f"{format_seconds(float(low))} to {format_seconds(float(high))}"),
        (f"{rate[0].upper()}{rate[1:]}", tables.shown(total), f"{tables.shown(each)} per GPU"),
        ("MFU", f"{100 * float(best.speed.mfu):.1f} %", f"HFU {100 * float(best.speed.hfu):.1f} %"),
        ("Memory per GPU", format_bytes(best.peak), f"of {format_bytes(best.usable)}, P(fits) {best.p_fits:.0%}"),
    ]
    if price:
        values.append(("USD per Mtok", f"{sum(price) / 2:.3g}", f"{price[0]:.3g} to {price[1]:.3g}"))
    if run:
        values.append(("Whole run", f"{run.days:,.3g} days", f"{run.gpu_hours:,.0f} GPU-hours"))
    ui.figures(values)


@dataclass(frozen=True)
class Pieces:
    """What takes a while to draw of a ranking."""

    frame: pd.DataFrame
    intervals: tuple[Any, pd.DataFrame]
    front: tuple[Any, pd.DataFrame]
    why: str


@st.cache_resource(max_entries=answers.KEPT, show_spinner=False)
def _pieces(asked: Inputs) -> Pieces:
    found = answers.recommendation(asked)
    assert isinstance(found, Recommendation)
    return Pieces(tables.ranking(found), ranking.intervals(found), ranking.front(found), _why(found))


def _evidence(asked: Inputs, found: Recommendation) -> None:
    pieces = _pieces(asked)
    ui.table(pieces.frame)
    if any(plan.tie for plan in found.plans):
        st.caption("~ ties with the best: the chance that either is faster is under 80 %.")
    left, right = st.columns(2)
    with left:
        ui.chart(*pieces.intervals, "step_times")
    with right:
        ui.chart(*pieces.front, "time_and_memory")
    st.markdown(pieces.why)
    with st.expander(f"{found.feasible:,} of {found.evaluated:,} legal plans fit; why others were turned down"):
        ui.reasons(found.rejected)


def _why(found: Recommendation) -> str:
    simpler = found.simpler
    lines = [f"**Limit:** {ui.plain(found.limit)}"]
    if simpler:
        slower = simpler.step_time / found.best.step_time - 1
        lines.append(f"**Simpler:** {ui.plain(simpler.name)} ties, with {slower:.1%} more time")
    lines += [f"**Instead:** {ui.plain(reason)}" for reason in found.reasons]
    lines.append(f"**Runs with:** {', '.join(found.targets) or 'no trainer known here: choose a target at the left'}")
    return "\n".join(f"- {line}" for line in lines)


@ui.panel
def _launch(asked: Inputs, found: Recommendation) -> None:
    """Launch files of the best plan for any trainer and launcher."""
    choices = choice_names()
    with st.container(border=True):
        st.markdown("**Launch files of the best plan**")
        left, right = st.columns(2)
        left.selectbox("Trainer", choices["trainer"], key="launch_trainer", on_change=write_link)
        right.selectbox("Launcher", choices["launcher"], key="launch_with", on_change=write_link)
        target = f"{value('launch_with')},{value('launch_trainer')}"
        made = answers.launch_files(asked, 1, target)
        if "refused" in made:
            st.info(ui.plain(made["refused"]), icon=":material/block:")
            trainer = value("launch_trainer")
            st.button(f"Search only what {trainer} can express", key="launch_target", on_click=_aim, args=(trainer,))
            return
        for note in made["notes"]:
            st.caption(f":material/info: {ui.plain(note)}")
        st.code(made["start"], language="bash", wrap_lines=True)
        name = f"{found.best.name}-{target}".lower().replace(" ", "-").replace(",", "-")
        st.download_button(
            f"{len(made['files'])} files (zip)",
            _zipped(made["files"]),
            f"{name}.zip",
            "application/zip",
            key="launch_zip",
            icon=":material/download:",
            on_click="ignore",
        )


def _aim(trainer: str) -> None:
    """Make the trainer the question's target: the whole page is about what it can express then."""
    st.session_state["target"] = trainer


def _zipped(files: dict[str, str]) -> bytes:
    """The files in a folder `run`; the same files make the same bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(f"run/{name}")
            entry.external_attr = (0o755 if content.startswith("#!") else 0o644) << 16
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()
