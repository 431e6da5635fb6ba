"""What machines print: topologies checked and turned into nodes, logs of nccl-tests beside what was to be expected."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import altair as alt
import pandas as pd
import streamlit as st

from app import ui, uploads
from app.charts import style
from app.fields import OWN, names
from app.inputs import Inputs
from app.palette import SERIES
from planner import (
    Asked,
    PlannerError,
    SpecError,
    check_files,
    cluster_toml,
    diagnose,
    host_report,
    lines_of,
    nccl_tables,
)

MOST_FILES = 8
KINDS = ["txt", "log", "xml", "out"]


@ui.panel
def draw(asked: Inputs) -> None:
    """The panel."""
    with st.container(border=True):
        st.markdown("**What your machines print**")
        st.caption(
            "nvidia-smi topo -m, nvlink -s, ibstat, NCCL's topology XML and logs, nccl-tests. Read here, kept nowhere."
        )
        left, right = st.columns([3, 1])
        files = left.file_uploader("Files", KINDS, accept_multiple_files=True, key="dumps", max_upload_size=4)
        gpu = right.selectbox("GPU, where no file says", ["", *names("gpus")], key="dumps_gpu") or None
        for file in files[:MOST_FILES]:
            with ui.guarded():
                _one(uploads.stored(file.getvalue(), file.name), gpu, asked)
        if len(files) > MOST_FILES:
            st.caption(f"The first {MOST_FILES} of {len(files)} files are read.")


def _one(path: Any, gpu: str | None, asked: Inputs) -> None:
    """What one file holds: a host, or tables, or both."""
    report = host_report(path, gpu=gpu)
    st.markdown(f"**{ui.plain(path.name)}**: {' and '.join(report.dump.formats)}")
    st.code("\n".join(lines_of(report.dump)), language=None, wrap_lines=True)
    if report.dump.tables:
        _tables(path, gpu, asked)
        return
    if report.host is None:
        st.caption(ui.plain(report.lacking))
    for each in check_files([path], gpu=gpu):
        if not each.findings:
            st.success(f"Nothing looks wrong ({', '.join(each.checked) or 'nothing in it can be checked'}).")
        for finding in each.findings:
            st.warning(ui.plain(f"{finding.what}, because {finding.why}"), icon=":material/warning:")
            st.code(finding.command, language="bash", wrap_lines=True)
    if report.groups:
        ui.table(pd.DataFrame([asdict(group) for group in report.groups]).rename(columns=_unit))
    if report.host is not None:
        st.download_button(
            "Cluster TOML", cluster_toml(report.host), f"{path.stem}.toml", key=f"toml_{path}", on_click="ignore"
        )
    option = f" --gpu {gpu}" if gpu else ""
    ui.command(f"planner topo check {path.name}{option}")


def _unit(column: str) -> str:
    """A column's name with its unit in brackets."""
    for ending, unit in (("_gb_per_s", " (GB/s)"), ("_us", " (us)")):
        if column.endswith(ending):
            return column.removesuffix(ending).replace("_", " ") + unit
    return column.replace("_", " ")


def _tables(path: Any, gpu: str | None, asked: Inputs) -> None:
    """Tables of nccl-tests: bus bandwidth by size, and measured against expected."""
    found = nccl_tables([path])
    rows = [
        {
            "table": f"{table.collective or 'unknown'}, {table.ranks or '?'} ranks, line {table.line}",
            "size (bytes)": sample.size,
            "bus bandwidth (GB/s)": sample.busbw / 1e9,
            "time (us)": sample.time * 1e6,
        }
        for _, table in found.tables
        for sample in table.samples
        if sample.size > 0
    ]
    frame = pd.DataFrame(rows)
    lines = (
        alt.Chart(frame)
        .mark_line(point=True)
        .encode(
            x=alt.X("size (bytes):Q", scale=alt.Scale(type="log", base=2), axis=alt.Axis(format="~s")),
            y=alt.Y("bus bandwidth (GB/s):Q"),
            color=alt.Color("table:N", scale=alt.Scale(range=list(SERIES)), legend=style.legend(columns=1)),
            tooltip=style.tips("table", "size (bytes)", "bus bandwidth (GB/s)", "time (us)"),
        )
        .properties(height=style.height(8, names=frame["table"].nunique()))
    )
    ui.chart(lines, frame, f"nccl_{path.parent.name}")
    _expected(path, gpu, asked)


def _expected(path: Any, gpu: str | None, asked: Inputs) -> None:
    """Measured against expected on the cluster at the left, and the likely causes."""
    cluster = asked.cluster_argument
    try:
        judged = diagnose(Asked(files=(path,), cluster=None if gpu else cluster, gpu=gpu))
    except (PlannerError, SpecError) as error:
        st.caption(ui.plain(ui.words(error)))
        return
    st.markdown(f"**{ui.plain(ui.named(judged.sentence))}**")
    rows = [
        {
            "what": each.what,
            "measured": each.measured,
            "expected": each.expected,
            "80 % from": each.low,
            "80 % to": each.high,
            "unit": each.unit,
            "": each.standing.name.lower(),
        }
        for each in judged.comparisons
    ]
    if rows:
        ui.table(pd.DataFrame(rows).round(3))
    for cause in judged.causes:
        text = f"{cause.cause} ({cause.strength.name.lower()}): {cause.evidence}. Set: {cause.setting}"
        st.markdown(f"- {ui.plain(ui.named(text))}")
        st.code(ui.named(cause.next_command), language="bash", wrap_lines=True)
    where = f"--gpu {gpu}" if gpu else f"--cluster {'my-cluster.toml' if asked.hardware == OWN else cluster}"
    ui.command(f"planner diagnose {path.name} {where}")
