"""Memory, Time and Network of a plan say what the command lines say that they show."""

import pytest

pytest.importorskip("streamlit")

from tests.app.running import at, cli, commands, metric, opened, problems

LLAMA = {"model": "llama-3.1-70b", "hardware": "dgx-h100", "count": 4, "seq_len": 8192}


def chart_rows(app, name):
    """The figures of a chart, as its CSV has them."""
    return next(each for each in app.get("download_button") if each.key == f"csv_{name}")


@pytest.mark.parametrize("plan", [1, 3])
def test_memory_is_that_of_fits(plan):
    app = opened("memory", **LLAMA, plan=plan)
    assert problems(app) == []
    expected = cli(commands(app)[-1])
    assert metric(app, "Peak per GPU") == f"{expected['peak_memory_gib']:.1f} GiB"
    assert metric(app, "P(fits)") == f"{expected['p_fits']:.0%}"
    assert metric(app, "Peaks at") == expected["memory_peak"]["moment"].replace("_", " ")
    items = app.dataframe[0].value
    assert items["per GPU (GiB)"].sum() == pytest.approx(expected["peak_memory_gib"])


def test_dials_that_are_turned_give_what_fits_gives_for_the_command_shown():
    app = opened("memory", **LLAMA, dial_tp=8, dial_recompute="full")
    assert problems(app) == []
    expected = cli(commands(app)[0])
    assert (expected["plan"]["tp"], expected["plan"]["recompute"]) == (8, "full")
    peaks = [each.value for each in app.metric if each.label == "Peak per GPU"]
    assert peaks[1] == f"{expected['peak_memory_gib']:.1f} GiB"


def test_an_illegal_dial_is_explained():
    app = opened("memory", model="llama-3.2-1b", count=1)
    app.select_slider(key="dial_pp").set_value("32").run()
    assert problems(app) == []
    assert "Not legal" in app.info[0].value


def test_where_nothing_fits_the_memory_page_shows_the_smallest_plan():
    app = opened("memory", model="llama-3.1-405b", count=1)
    assert problems(app) == []
    assert "none of" in app.warning[0].value
    assert "does not fit" in app.markdown[0].value.lower()


def test_time_is_that_of_recommend_and_the_step_played_that_of_simulate():
    app = opened("time", **LLAMA)
    assert problems(app) == []
    played = cli(commands(app)[-1])
    caption = next(each.value for each in app.caption if "micro-batches on" in each.value)
    assert f"{played['bubble_fraction']:.1%}" in caption
    shares = {each.label: float(each.value.rstrip("%")) for each in app.metric}
    assert sum(shares.values()) == pytest.approx(100, abs=0.4)
    best = cli(commands(opened(**LLAMA))[0])["plans"][0]
    waits = sum(value for name, value in best["time_breakdown_s"].items() if name.endswith("_exposed"))
    assert shares["Communication"] == pytest.approx(100 * waits / best["step_time_s"], abs=0.06)


def test_another_schedule_and_jitter_are_those_of_the_command():
    app = opened("time", **LLAMA, schedule="gpipe", jitter=5)
    assert problems(app) == []
    assert "--schedule gpipe --jitter 0.05" in commands(app)[-1]
    ranks = app.dataframe[0].value
    expected = cli(commands(app)[-1])["ranks"]
    assert list(ranks["computes (s)"]) == [round(each["busy_s"], 4) for each in expected]


def test_a_schedule_that_does_not_go_with_the_plan_says_so():
    app = opened("time", model="llama-3.2-1b", count=1, schedule="zb-v", fix="pp=1")
    assert problems(app) == []
    assert len(app.info) <= 1


def test_network_is_that_of_explain_links():
    app = opened("network", **LLAMA)
    assert problems(app) == []
    found = cli(commands(app)[0])["link_traffic"]
    classes, axes = app.dataframe[0].value, app.dataframe[1].value
    assert list(classes["busiest per step (GB)"]) == [each["busiest_gb"] for each in found["classes"]]
    assert list(classes["busy (% of step)"]) == [100 * each["utilisation"] for each in found["classes"]]
    # The table shows four digits.
    sent = [each["sent_gb"] for each in found["axes"]]
    assert list(axes["sent per GPU and step (GB)"]) == pytest.approx(sent, rel=1e-3)
    busiest = max(found["classes"], key=lambda each: each["utilisation"])
    assert f"{busiest['utilisation']:.0%} of the step" in app.markdown[0].value


def test_one_gpu_has_no_network():
    app = opened("network", model="gpt2", hardware="rtx-4090", count=1)
    assert problems(app) == []
    assert "Nothing is sent" in app.markdown[0].value


def test_what_is_chosen_on_one_page_holds_on_the_next():
    app = opened("memory", **LLAMA, plan=2)
    at(app, "time")
    assert problems(app) == []
    assert app.selectbox(key="plan").value == 2
    assert app.selectbox(key="model").value == "llama-3.1-70b"
    assert "dial_tp" not in app.query_params
