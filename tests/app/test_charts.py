"""What charts draw is what their tables say, and nothing stands over anything else."""

import pytest

import planner

pytest.importorskip("streamlit")

from app.charts import memory, network, timeline


@pytest.mark.parametrize("cluster", ["4xdgx-h100", "1xdgx-1-v100", "8xrtx-4090", "64xfrontier", "2xgb200-nvl72"])
def test_links_are_drawn_with_the_load_of_their_class(cluster):
    best = planner.recommend("llama-3.2-1b", cluster, top=1).best
    traffic = planner.link_traffic(best)
    _, edges = network.topology(best.question.cluster, traffic)
    drawn = set(zip(edges["links"], edges["one way (GB/s)"].round(4), edges["busy (% of step)"].round(6), strict=True))
    for each in traffic.as_dict()["classes"]:
        name = network.CLASSES[each["class"]]
        assert (name, round(each["capacity_gb_per_s"], 4), round(100 * each["utilisation"], 6)) in drawn


@pytest.mark.parametrize("cluster", ["4xdgx-h100", "1xdgx-1-v100", "2xdgx-2", "16xaws-p5"])
def test_no_two_vertices_stand_in_one_place(cluster):
    links = planner.graph(planner.cluster(cluster))
    places = network._places(links)
    assert len(places) == len(links)
    assert len(set(places.values())) == len(places)


def test_items_of_a_stage_add_up_to_its_peak():
    question = planner.ask("llama-3.1-70b", "8xdgx-h100", planner.Choices(fix="tp=4,pp=4"))
    report = planner.fits(question)
    items = memory.items(report).groupby("stage")["memory per GPU (GiB)"].sum()
    for role in ("first", "middle", "last"):
        peak = max(report.as_dict()["timeline_gib"][role].values())
        assert items[f"{role} stage"] == pytest.approx(peak)


def test_slices_are_those_of_the_trace_and_the_first_and_last_rank_are_drawn():
    best = planner.recommend("llama-3.1-8b", "2xdgx-h100", planner.Choices(fix="pp=4"), top=1).best
    simulation = planner.simulated(best).simulation
    frame = timeline.slices(simulation)
    assert (frame["start (ms)"] + frame["length (ms)"]).max() == pytest.approx(1e3 * simulation.makespan, rel=1e-3)
    ranks = timeline.drawn_ranks(frame)
    assert (ranks[0], ranks[-1]) == (0, 3)
    _, drawn, _ = timeline.timeline(frame, ranks)
    assert set(drawn["rank"]) == set(ranks)
