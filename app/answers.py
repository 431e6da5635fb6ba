"""planner's answers, each kept by its question: the same question again costs nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from app.charts import timeline
from app.inputs import Inputs
from planner import (
    Circumstances,
    FitReport,
    MixedAnswer,
    NoFeasiblePlan,
    PlannerError,
    PlanTraffic,
    Question,
    RankedPlan,
    Recommendation,
    SimulatedStep,
    Software,
    SpecError,
    ask,
    emission,
    fit_report,
    fits,
    fix_text,
    link_traffic,
    mixed,
    plan_file_of,
    recommend,
    simulated,
)

TOP = 10
"""Plans that are ranked."""
KEPT = 128


@st.cache_resource(max_entries=KEPT, show_spinner=False)
def question(asked: Inputs) -> Question:
    """The question with its defaults. Raises SpecError or FileFormatError."""
    return ask(asked.model_argument, asked.cluster_argument, asked.choices)


@st.cache_resource(max_entries=KEPT, show_spinner="Searching plans")
def recommendation(asked: Inputs) -> Recommendation | NoFeasiblePlan:
    """The ranking, or why nothing fits. Raises SpecError or FileFormatError."""
    try:
        return recommend(asked.model_argument, asked.cluster_argument, asked.choices, top=TOP)
    except NoFeasiblePlan as error:
        return error


@st.cache_resource(max_entries=KEPT, show_spinner=False)
def chosen(asked: Inputs, number: int) -> RankedPlan:
    """The plan of that rank; where nothing fits, the smallest. Raises NoFeasiblePlan where none is legal."""
    found = recommendation(asked)
    if isinstance(found, NoFeasiblePlan):
        return fits(question(asked)).ranked
    return found.plans[min(number, len(found.plans)) - 1]


@st.cache_resource(max_entries=KEPT, show_spinner="Judging memory")
def judged(asked: Inputs, number: int) -> FitReport:
    """The memory of the plan of that rank."""
    return fit_report(chosen(asked, number))


@st.cache_resource(max_entries=KEPT, show_spinner="Judging memory")
def judged_best(asked: Inputs) -> FitReport | PlannerError:
    """The memory of the plan that `planner fits` judges: the best within what is fixed; or why none is legal."""
    try:
        return fits(question(asked))
    except PlannerError as error:
        return error


@st.cache_resource(max_entries=KEPT, show_spinner="Routing traffic")
def traffic(asked: Inputs, number: int) -> PlanTraffic:
    """What the plan of that rank puts on links."""
    return link_traffic(chosen(asked, number))


@st.cache_resource(max_entries=16, show_spinner="Playing the step")
def played(asked: Inputs, number: int, schedule: str, jitter: float) -> SimulatedStep:
    """A step of the plan of that rank. Raises SpecError where the schedule does not go with the plan."""
    return simulated(chosen(asked, number), Circumstances(schedule=schedule, jitter=jitter))


@st.cache_data(max_entries=16, show_spinner=False)
def slices(asked: Inputs, number: int, schedule: str, jitter: float) -> pd.DataFrame:
    """The slices of that step."""
    return timeline.slices(played(asked, number, schedule, jitter).simulation)


@st.cache_resource(max_entries=KEPT, show_spinner="Trying uneven work")
def uneven(asked: Inputs) -> MixedAnswer | None:
    """Ways to use unequal nodes, where `recommend` begins with them; None elsewhere."""
    of, found = question(asked), recommendation(asked)
    aimed = of.objective == "memory" or of.choices.target is not None
    if len(of.cluster.pools) < 2 or aimed or isinstance(found, NoFeasiblePlan):
        return None
    return mixed(of, found.best)


def plan_values(asked: Inputs, number: int) -> dict[str, Any]:
    """The fields of the plan of that rank, as JSON has them."""
    found: dict[str, Any] = chosen(asked, number).as_dict()["plan"]
    return found


@st.cache_data(max_entries=KEPT, show_spinner=False)
def pinned(asked: Inputs, number: int) -> str:
    """What `--fix` leaves the plan of that rank alone; empty where no text can."""
    plan, of = chosen(asked, number).plan, question(asked)
    return fix_text(plan, Software(of.model, of.cluster, of.workload, of.stack, of.profile))


def plan_command(asked: Inputs, number: int, verb: str) -> str:
    """The command that says the same of the plan of that rank."""
    text, fix = question(asked).command(verb), pinned(asked, number)
    without = text.split(" --fix ")[0]
    return asked.shown(f"{without} --fix {fix}" if fix else text)


@st.cache_data(max_entries=KEPT, show_spinner=False)
def launch_files(asked: Inputs, number: int, target: str) -> dict[str, Any]:
    """The files of a target by name, with the command that starts them; or under `refused` why it cannot have them."""
    try:
        made = emission(plan_file_of(chosen(asked, number)), target, Path("run"))
    except SpecError as error:
        return {"refused": str(error)}
    return {"files": dict(made.files), "start": made.start, "notes": list(made.notes), "target": made.target}
