"""planner's answers over many sizes, each kept by its question."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import streamlit as st

from app.answers import KEPT, question
from app.fields import OWN, names
from app.inputs import Inputs
from planner import (
    Budget,
    Comparison,
    Largest,
    MinGpus,
    NoFeasiblePlan,
    RunsReport,
    Scaling,
    Side,
    SpecError,
    WhatIf,
    budget,
    compare,
    largest,
    min_gpus,
    profiles_of,
    runs_report,
    scaling,
    sides,
    what_if,
)


@st.cache_resource(max_entries=2048, show_spinner=False)
def cell(asked: Inputs) -> Side:
    """The best plan of a question, or the reason why there is none."""
    return Side.of("", question(asked))


@st.cache_resource(max_entries=KEPT, show_spinner="Searching every size on every network")
def scaled(asked: Inputs, networks: tuple[str, ...], sizes: str, weak: bool) -> Scaling:
    """How far the model scales on the node type. Raises SpecError where the hardware is no node type."""
    if asked.hardware == OWN:
        raise SpecError("a node type of the catalogue is needed to try other numbers of nodes")
    chosen = replace(asked.choices, network=",".join(networks) or None)
    return scaling(asked.model_argument, asked.hardware, chosen, sizes=sizes, weak=weak)


@st.cache_resource(max_entries=KEPT, show_spinner="Searching the fewest GPUs of each kind")
def fewest(asked: Inputs, accelerators: tuple[str, ...], days: float | None) -> MinGpus:
    """The fewest GPUs of each accelerator. Raises SpecError or NoFeasiblePlan."""
    chosen = replace(asked.choices, network=None)
    return min_gpus(asked.model_argument, chosen, accelerators=accelerators or tuple(names("gpus")), days=days)


@st.cache_resource(max_entries=KEPT, show_spinner="Trying every size")
def greatest(asked: Inputs, solve: str) -> Largest:
    """The largest of something that fits; what is looked for is left free. Raises SpecError or NoFeasiblePlan."""
    free = {"seq-len": {"seq_len": None}, "global-batch": {"global_batch_size": None}}.get(solve, {})
    return largest(asked.model_argument, asked.cluster_argument, replace(asked.choices, **free), solve=solve)


@st.cache_resource(max_entries=KEPT, show_spinner="Playing failures")
def whole_run(asked: Inputs) -> Budget:
    """What the whole run takes. Raises SpecError where no tokens are given, NoFeasiblePlan."""
    return budget(question(asked))


@st.cache_resource(max_entries=KEPT, show_spinner="Searching every side")
def compared(arguments: tuple[str, ...], given: tuple[tuple[str, Any], ...]) -> Comparison:
    """Sides as `planner compare` takes them. Raises SpecError, FileFormatError or NoFeasiblePlan."""
    return compare(sides(arguments, dict(given)))


@st.cache_resource(max_entries=KEPT, show_spinner="Trying every change")
def changed(asked: Inputs, wanted: str) -> WhatIf:
    """What changes do to the best plan. Raises SpecError for a change that cannot be, NoFeasiblePlan."""
    side = cell(asked)
    if side.ranked is None:
        raise NoFeasiblePlan(side.reason)
    return what_if(side.ranked, wanted)


@st.cache_resource(max_entries=16, show_spinner="Predicting every run")
def scored(path: str, profiles: tuple[str, ...]) -> RunsReport:
    """Measured runs beside their predictions. Raises FileFormatError."""
    return runs_report(Path(path), profiles_of(profiles))
