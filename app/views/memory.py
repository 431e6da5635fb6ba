"""Memory: what each pipeline stage holds, when it peaks, whether it fits, and what each dial does."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import streamlit as st

from app import answers, ui
from app.charts import memory
from app.fields import DIALS
from app.inputs import Inputs
from app.state import value, write_link
from app.views import common
from planner import FitReport, PlannerError, RankedPlan, format_bytes, format_seconds

AS_IS = "as the plan"


def draw(asked: Inputs) -> None:
    """The page."""
    ranked = common.plan_choice(asked)
    report = answers.judged(asked, common.number())
    _verdict(report)
    left, right = st.columns([3, 2])
    with left:
        st.markdown(
            "**At the fullest moment of each stage**" if int(ranked.plan.pp) > 1 else "**At the fullest moment**"
        )
        ui.chart(*memory.stages(report), "memory_by_stage")
    with right:
        st.markdown("**Over a step**")
        ui.chart(*memory.moments(report), "memory_over_step")
    _items(report)
    _turned(asked, ranked)
    if report.dials:
        st.markdown("**One change each**")
        ui.chart(*memory.dials(report), "memory_dials")
    ui.command(answers.plan_command(asked, common.number(), "fits"))


def _verdict(report: FitReport) -> None:
    st.markdown(f"##### {ui.plain(report.sentence)}")
    ranked = report.ranked
    values = [
        ("Peak per GPU", format_bytes(ranked.peak), f"of {format_bytes(ranked.usable)} usable"),
        ("P(fits)", f"{ranked.p_fits:.0%}", ranked.verdict.name.lower().replace("_", " ")),
        (
            "Head-room",
            format_bytes(max(ranked.usable - ranked.peak, 0.0)),
            f"{1 - ranked.peak / ranked.usable:.0%} of usable",
        ),
        ("Peaks at", ranked.moment.name.lower().replace("_", " "), _where(ranked)),
    ]
    if float(ranked.memory.host) > 0:
        host = "fits" if report.host_fits else "does not fit"
        values.append(("Host per GPU", format_bytes(float(ranked.memory.host)), host))
    ui.figures(values)


def _where(ranked: RankedPlan) -> str:
    return f"{ranked.role.name.lower()} stage" if int(ranked.plan.pp) > 1 else "every rank"


def _items(report: FitReport) -> None:
    with st.expander("Items of the peak, with their formulas"):
        rows = [
            {
                "item": each.term.title,
                "per GPU (GiB)": each.value / 2**30,
                "share (%)": 100 * each.share,
                "formula": "; ".join(formula.equation for formula in each.formulas[:2]),
            }
            for each in report.ranked.memory_terms
        ]
        ui.table(pd.DataFrame(rows))


@ui.panel
def _turned(asked: Inputs, ranked: RankedPlan) -> None:
    """Dials to turn together, and the plan that comes of it beside the one above."""
    with st.container(border=True):
        st.markdown("**Turn the dials**")
        _dials(asked, ranked)
        turned = _question(asked, ranked)
        if turned is None:
            st.caption(f"All {AS_IS}. Turn one to see memory and step time change.")
            return
        with ui.guarded():
            report = answers.judged_best(turned)
            if isinstance(report, PlannerError):
                st.info(f"Not legal: {ui.plain(ui.words(report).removeprefix('--fix: '))}", icon=":material/block:")
                return
            _against(ranked, report)
            ui.command(asked.shown(answers.question(turned).command("fits")))


def _dials(asked: Inputs, ranked: RankedPlan) -> None:
    plan = answers.plan_values(asked, common.number())
    columns = st.columns(4)
    for place, (name, values) in enumerate(DIALS.items()):
        now = ranked.question.workload.seq_len if name == "seq_len" else plan.get(name, "")
        with columns[place % 4]:
            st.select_slider(
                name.replace("_", " "),
                [AS_IS, *values],
                key=f"dial_{name}",
                on_change=write_link,
                help=f"The plan has {now}.",
            )


def _question(asked: Inputs, ranked: RankedPlan) -> Inputs | None:
    """The question with what was turned fixed, and the rest of the plan's strategy kept; None where nothing was."""
    turned = {name: value(f"dial_{name}") for name in DIALS if value(f"dial_{name}") != AS_IS}
    if not turned:
        return None
    plan = answers.plan_values(asked, common.number())
    kept = {name: turned.get(name, plan[name]) for name in DIALS if name in plan}
    fix = ",".join(f"{name}={each}" for name, each in kept.items())
    seq_len = int(turned["seq_len"]) if "seq_len" in turned else ranked.question.workload.seq_len
    batch = ranked.question.workload.global_batch_size
    return replace(asked, choices=replace(asked.choices, fix=fix, seq_len=seq_len, global_batch_size=str(batch)))


def _against(before: RankedPlan, report: FitReport) -> None:
    after = report.ranked
    more = after.peak - before.peak
    values = [
        ("Peak per GPU", format_bytes(after.peak), f"{'+' if more >= 0 else '-'}{format_bytes(abs(more))}"),
        ("P(fits)", f"{after.p_fits:.0%}", f"{before.p_fits:.0%} before"),
        ("Step time", format_seconds(after.step_time), f"{after.step_time / before.step_time - 1:+.1%}"),
    ]
    st.markdown(f"**{ui.plain(after.name)}**: {after.verdict.name.lower().replace('_', ' ')}")
    ui.figures(values)
    ui.chart(*memory.stages(report), "memory_turned")
