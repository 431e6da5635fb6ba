"""Network: the topology under a plan's load, which link holds each axis, and what machines print of theirs."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from app import answers, ui
from app.charts import network
from app.inputs import Inputs
from app.views import common, dumps
from planner import PlanTraffic, describe


def draw(asked: Inputs) -> None:
    """The page."""
    ranked = common.plan_choice(asked)
    traffic = answers.traffic(asked, common.number())
    st.markdown(f"##### {ui.plain(_bottleneck(traffic))}")
    cluster = ranked.question.cluster
    if cluster.world_size > 1:
        ui.chart(*network.topology(cluster, traffic), "topology")
        if cluster.num_nodes > 2:
            st.caption(f"{cluster.num_nodes:,} nodes; those drawn stand for all, and figures count all.")
        ui.table(network.link_table(traffic))
    _axes(traffic)
    with st.expander("The cluster in words"):
        st.code("\n".join(describe(cluster)), language=None, wrap_lines=True)
    ui.command(f"{answers.plan_command(asked, common.number(), 'explain')} --links")
    dumps.draw(asked)


def _bottleneck(traffic: PlanTraffic) -> str:
    """The link that is busy longest, and what its load adds to the step."""
    found = traffic.as_dict()
    loaded = [each for each in found["classes"] if each["busy_s"] > 0]
    if not loaded:
        return "Nothing is sent: every group is of one rank."
    first = max(loaded, key=lambda each: float(each["utilisation"]))
    name = network.CLASSES.get(first["class"], first["class"])
    axis = next((each for each in found["axes"] if each["axis"] == first["loads_most"]), None)
    words = f": {axis['words']}" if axis else ""
    return f"Busiest: {name}, {first['utilisation']:.0%} of the step, mostly by {first['loads_most']}{words}"


def _axes(traffic: PlanTraffic) -> None:
    """Each axis: what it sends, the link that holds it, and the bandwidth that would hide it."""
    found = traffic.as_dict()
    hiding = {each["communication"]: each for each in found["hiding"]}
    rows = []
    for axis in found["axes"]:
        shown = hiding.get(axis["axis"])
        faster = shown and shown["hidden"]
        rows.append(
            {
                "axis": axis["axis"],
                "ranks": axis["ranks"],
                "sent per GPU and step (GB)": axis["sent_gb"],
                "link busy (s)": axis["busy_s"],
                "exposed (s)": shown["exposed_s"] if shown else 0.0,
                "held by": axis["words"],
                "hidden from (GB/s per GPU)": faster["gb_per_s_per_gpu"] if faster else None,
            }
        )
    if rows:
        st.markdown("**By axis of parallelism**")
        ui.table(pd.DataFrame(rows))
