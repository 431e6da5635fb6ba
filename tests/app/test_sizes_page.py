"""What fits: every panel says what the command line says that it shows."""

import pytest

pytest.importorskip("streamlit")

from tests.app.running import cli, commands, metric, opened, problems

SMALL = {"model": "llama-3.2-1b", "hardware": "dgx-h100", "count": 1}


def test_a_cell_of_the_map_is_the_first_plan_of_its_question():
    app = opened("fits", **SMALL)
    assert problems(app) == []
    assert "24 of 24 sizes fit" in app.markdown[0].value or "sizes fit" in app.markdown[0].value
    best = cli(commands(app)[0])["plans"][0]
    csv = app.session_state["_map"]
    cell = csv[(csv["GPUs"] == 8) & (csv["sequence length (tokens)"] == 4096)].iloc[0]
    assert cell["tokens/s per GPU"] == best["tokens_per_s_per_gpu"]
    assert cell["plan"] == best["name"]


def test_a_cell_that_does_not_fit_says_why():
    app = opened("fits", model="llama-3.1-70b", hardware="rtx-4090", count=2, map_rows="global batch (sequences)")
    assert problems(app) == []
    assert app.markdown[0].value.startswith("##### 0 of")
    assert app.dataframe[0].value["why not"].str.contains("none of").all()


def test_scaling_is_that_of_scale():
    app = opened("fits", **SMALL, panel="scaling", networks="ib-ndr400,tcp-100", sizes="8..64", tokens="1T")
    assert problems(app) == []
    expected = cli(commands(app)[0])
    table = app.dataframe[1].value
    points = [point for network in expected["networks"] for point in network["points"]]
    assert list(table["tokens/s"]) == pytest.approx([point["tokens_per_s"] for point in points], abs=0.5)
    assert list(table["efficiency (%)"]) == pytest.approx([100 * point["efficiency"] for point in points])
    assert list(table["days"]) == pytest.approx([point["run"]["days"] for point in points])


def test_scaling_needs_a_node_type():
    from app.uploads import packed

    own = packed("mine.toml", 'nodes = 2\nnode = "dgx-h100"\n')
    app = opened("fits", model="gpt2", hardware="own file", cluster_file=own, panel="scaling")
    assert not app.exception
    assert "a node type of the catalogue is needed" in app.error[0].value


def test_fewest_gpus_are_those_of_min_gpus():
    app = opened("fits", model="llama-3.1-8b", panel="fewest", compared_gpus="h100-sxm,rtx-4090")
    assert problems(app) == []
    expected = cli(commands(app)[0])["accelerators"]
    table = app.dataframe[0].value
    assert list(table["GPU"]) == [each["accelerator"] for each in expected]
    assert list(table["GPUs"]) == [each["fewest"]["gpus"] for each in expected]


@pytest.mark.parametrize("solve", ["seq-len", "micro-batch"])
def test_the_largest_is_that_of_max(solve):
    app = opened("fits", model="gpt2", hardware="rtx-4090", count=1, panel="largest", solve=solve, seq_len=1024)
    assert problems(app) == []
    expected = cli(commands(app)[0])
    known = dict(zip(app.dataframe[0].value.iloc[:, 0], app.dataframe[0].value["plan"], strict=True))
    assert {point["value"]: point.get("name", "") for point in expected["points"] if point["value"] in known} == known
    assert expected["largest"] in known


def test_a_whole_run_is_that_of_budget():
    app = opened("fits", **SMALL, panel="run", tokens="300B")
    assert problems(app) == []
    expected = cli(commands(app)[0])
    assert metric(app, "Without failures") == f"{expected['without_failures']['days']:,.3g}"
    assert list(app.dataframe[0].value["days"]) == pytest.approx(
        [expected["without_failures"]["days"], expected["with_failures"]["days"]]
    )


def test_a_map_that_takes_long_is_shown_as_far_as_it_is_found_and_goes_on(monkeypatch):
    from app.views import fits

    monkeypatch.setattr(fits, "PATIENCE", 0.0)
    app = opened("fits", model="gpt2", hardware="rtx-4090", count=2, seq_len=512)
    assert problems(app) == []
    left = app.button(key="map_more").label
    monkeypatch.setattr(fits, "PATIENCE", 1e9)
    app.button(key="map_more").click().run()
    assert problems(app) == []
    assert left.startswith("Search the other")
    assert not [each for each in app.button if each.key == "map_more"]
