"""The efficiencies behind a prediction: what was measured, how sure it is, and what to measure next."""

from __future__ import annotations

from dataclasses import fields
from importlib import import_module
from typing import Any

import pandas as pd
import streamlit as st

from app import answers, ui, uploads
from app.inputs import OWN_PROFILE, Inputs
from planner import Profile, profile_of

LEVELS = {
    "calibrated": "measured on this accelerator with this stack",
    "transferred": "measured on this accelerator with another stack, or elsewhere with this one",
    "datasheet": "nothing measured of this pair",
}


def own_profiles() -> tuple[str, ...]:
    """The uploaded profile, if it is used."""
    path = st.session_state.get(OWN_PROFILE)
    return (path,) if path else ()


@ui.panel
def draw(asked: Inputs) -> None:
    """The panel."""
    label = "Own profile (JSON that planner calibrate wrote)"
    file = st.file_uploader(label, ["json"], key="profile_file", max_upload_size=4)
    of = answers.question(asked)
    path = str(uploads.stored(file.getvalue(), file.name)) if file else None
    with ui.guarded():
        found = profile_of(of.cluster, of.stack, path) if path else of.profile
        _state(found)
        if path:
            _use(path)
            _status(path)
        _figures(found)
    target = f"--model {of.model.name} --cluster {ui.named(of.cluster_text)}"
    name = uploads.plain(file.name) if file else "profile.json"
    ui.command(
        f"planner calibrate run --minutes 10 --out {name} {target}",
        "Measure on the machine itself, and ask what is next",
    )
    ui.command(f"planner calibrate status --profile {name} {target}", "")


def _state(found: Profile) -> None:
    st.markdown(f"##### {ui.plain(found.name)}: {found.level}, {LEVELS.get(found.level, '')}")
    values = [
        ("Step time", f"±{100 * found.error:.0f} %", "standard deviation"),
        ("Between plans", f"±{100 * found.plan_error:.0f} %", "what they do not share"),
        ("Memory", f"±{100 * found.memory_error:.0f} %", "standard deviation"),
    ]
    ui.figures(values)
    for note in (*found.notes, *found.sources):
        st.caption(f":material/info: {ui.plain(ui.named(note))}")


def _use(path: str) -> None:
    used = st.session_state.get(OWN_PROFILE) == path
    label = "No longer use it" if used else "Use it on all pages"
    if st.button(label, key="use_profile", type="secondary" if used else "primary"):
        st.session_state[OWN_PROFILE] = None if used else path
        st.rerun()


def _status(path: str) -> None:
    """What an own profile rests on and what to measure next, where planner's calibration is installed."""
    try:
        status = import_module("calibration.status").status_of
    except ModuleNotFoundError as error:
        st.caption(f"What it rests on needs {error.name}: pip install 'planner[calibration]'.")
        return
    from pathlib import Path

    found = status(Path(path)).as_dict()
    if found["measurements"]:
        st.caption(f"{found['measurements']} measurements, the last {found['age_days']:.3g} days ago.")
    if found["parameters"]:
        st.markdown("**What it rests on**")
        ui.table(pd.DataFrame(found["parameters"]))
    if found["next"]:
        st.markdown("**Next best measurements**")
        rows = [{"measurement": each["name"], **each["parameters"]} for each in found["next"]]
        ui.table(pd.DataFrame(rows).astype(str))


def _figures(found: Profile) -> None:
    """Its figures, and its collectives by link."""
    with st.expander("Its figures"):
        scalars: list[dict[str, Any]] = [
            {"figure": field.name.replace("_", " "), "value": float(getattr(found, field.name))}
            for field in fields(found)
            if isinstance(getattr(found, field.name), int | float)
        ]
        ui.table(pd.DataFrame(scalars))
        rows = [
            {
                "link": link,
                "collective": collective,
                "efficiency (% of the link)": 100 * fit.efficiency,
                "start (us)": 1e6 * fit.start,
                "a step (us)": 1e6 * fit.step_latency,
                "source": fit.source,
            }
            for (link, collective), fit in found.collectives.items()
        ]
        ui.table(pd.DataFrame(rows))
