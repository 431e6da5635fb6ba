"""Compare: clusters, networks, models, methods or plans side by side, differences first; and what a change would do."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import pandas as pd
import streamlit as st

from app import answers_at_scale as scale
from app import ui, uploads
from app.charts import comparison
from app.fields import CHANGES, names
from app.inputs import Inputs
from app.state import value, write_link
from planner import SpecError, choice_names

MODES = {"sides": "Side by side", "what_if": "What if"}


def draw(asked: Inputs) -> None:
    """The page."""
    st.segmented_control(
        "Mode", MODES, key="mode", label_visibility="collapsed", on_change=write_link, format_func=MODES.__getitem__
    )
    if value("mode") == "what_if":
        _what_if(asked)
    else:
        _sides(asked)


@ui.panel
def _sides(asked: Inputs) -> None:
    plans = _controls()
    with ui.guarded():
        arguments, given = _arguments(asked, plans)
        found = scale.compared(arguments, given)
        st.markdown(f"##### {ui.plain(ui.named(found.sentence))}")
        ui.chart(*comparison.times(found.sides), "time_by_side")
        _differences(found)
        for title, text in found.remarks:
            st.markdown(f"- **{title[0].upper()}{title[1:]}:** {ui.plain(ui.named(text))}")
        ui.command(ui.named(_command(arguments, dict(given))))


def _controls() -> tuple[Any, ...]:
    """What the question at the left is compared with; the plan files that were uploaded."""
    left, right = st.columns(2)
    left.text_input(
        "Other clusters",
        key="other_clusters",
        placeholder="4xdgx-a100, 32xrtx-4090",
        on_change=write_link,
        help="With commas between them.",
    )
    right.multiselect("Networks", names("networks"), key="other_networks", on_change=write_link, max_selections=6)
    left.multiselect("Other models", names("models"), key="other_models", on_change=write_link, max_selections=6)
    right.multiselect("Stacks", names("stacks"), key="other_stacks", on_change=write_link, max_selections=6)
    left.multiselect("Methods", choice_names()["method"], key="other_methods", on_change=write_link)
    left.text_input(
        "Plans",
        key="other_fixes",
        placeholder="tp=8; pp=2..4",
        on_change=write_link,
        help="As --fix, with ; between them.",
    )
    files = right.file_uploader("plan.json", ["json"], accept_multiple_files=True, key="plan_files", max_upload_size=1)
    return tuple(files[:6])


def _arguments(asked: Inputs, plans: tuple[Any, ...]) -> tuple[tuple[str, ...], tuple[tuple[str, Any], ...]]:
    """SIDES of the command and its options. Without anything to compare with, half and twice the nodes are."""
    own = [str(uploads.stored(file.getvalue(), file.name)) for file in plans]
    others = [_cluster(each.strip()) for each in value("other_clusters").split(",") if each.strip()]
    model = ",".join([asked.model_argument, *value("other_models")])
    fixes = [each.strip() for each in value("other_fixes").split(";") if each.strip()]
    given: dict[str, Any] = {name: each for name, each in asdict(asked.choices).items() if each is not None}
    if value("other_networks"):
        given["network"] = ",".join(value("other_networks"))
    if value("other_methods"):
        given["method"] = ",".join(value("other_methods"))
    if value("other_stacks"):
        given["stack"] = ",".join(value("other_stacks"))
    if fixes:
        given["fix"] = tuple(fixes)
    elif "fix" in given:
        given["fix"] = (given["fix"],)
    lists = ("other_models", "other_networks", "other_methods", "other_stacks")
    if not (own or others or fixes or any(value(name) for name in lists)):
        others = _neighbours(asked)
    return (*own, model, asked.cluster_argument, *others), tuple(given.items())


def _cluster(text: str) -> str:
    """A cluster by name. Raises SpecError for anything else: a page reads no files of the machine that it runs on."""
    if not re.fullmatch(r"[0-9]+x[A-Za-z0-9._-]+", text):
        raise SpecError(f"write a number and a name, such as 4xdgx-a100, not {text!r:.60}", where="Other clusters")
    return text


def _neighbours(asked: Inputs) -> list[str]:
    """Half and twice the nodes, of hardware that the catalogue knows."""
    if "/" in asked.cluster_argument:
        return ["2xdgx-h100"]
    counts = [asked.count // 2, asked.count * 2]
    return [
        f"{count}x{asked.hardware}" for count in counts if count and (count <= 8 or asked.hardware in names("nodes"))
    ]


def _differences(found: Any) -> None:
    rows = [
        {
            "": line.name,
            **{ui.named(side.label): figure.text for side, figure in zip(found.sides, line.figures, strict=True)},
        }
        for line in found.differences
    ]
    ui.table(pd.DataFrame(rows), height=min(36 * len(rows) + 40, 560))
    same = [f"{line.name} {line.figures[0].text}" for line in found.equal if line.figures[0].text not in ("-", "1")]
    if same:
        with st.expander("The same on all sides"):
            st.write(ui.plain("; ".join(same)))


def _command(arguments: tuple[str, ...], given: Mapping[str, Any]) -> str:
    words = ["planner", "compare", *arguments]
    for name, each in given.items():
        for text in each if isinstance(each, tuple) else (each,):
            words += [f"--{name.replace('_', '-')}", str(text)]
    return shlex.join(words)


@ui.panel
def _what_if(asked: Inputs) -> None:
    st.multiselect(
        "Changes",
        list(dict.fromkeys((*CHANGES, *value("changes")))),
        key="changes",
        accept_new_options=True,
        max_selections=12,
        on_change=write_link,
        placeholder="nic=2x, memory=40GB, seq-len=8192, network=roce-400",
    )
    if not value("changes"):
        st.info("Choose or type a change, such as nic=2x.", icon=":material/tune:")
        return
    wanted = ",".join(value("changes"))
    with ui.guarded():
        found = scale.changed(asked, wanted)
        st.markdown(f"##### {ui.plain(found.sentence)}")
        ui.chart(*comparison.effects(found), "what_if")
        ui.table(pd.DataFrame(_rows(found.as_dict())))
        for text, reason in found.reasons:
            st.markdown(f"- **{ui.plain(text)}:** {ui.plain(reason)}")
        given = {name: each for name, each in asdict(asked.choices).items() if each is not None}
        command = _command((asked.model_argument, asked.cluster_argument), given)
        ui.command(asked.shown(f"{command} --what-if {shlex.quote(wanted)}"))


def _rows(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "change": each["change"],
            "what": each["words"],
            "per 1 % (% of step time)": each["sensitivity"],
            "step time, same plan (s)": each["same_plan"].get("step_time_s"),
            "memory, same plan (GiB)": each["same_plan"].get("peak_memory_gib"),
            "best plan": each["best_plan"].get("name") or each["best_plan"].get("reason"),
            "step time, best plan (s)": each["best_plan"].get("step_time_s"),
            "memory, best plan (GiB)": each["best_plan"].get("peak_memory_gib"),
        }
        for each in found["changes"]
    ]
