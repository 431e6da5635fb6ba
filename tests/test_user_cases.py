"""What people reported of their own runs (tests/data/user_cases.toml), asked of the planner."""

import tomllib
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import planner
from planner.answer.ranked_plan import RankedPlan
from planner.estimate.interval import Verdict
from planner.estimate.memory import memory_timeline
from planner.estimate.records import Moment, Role
from planner.quantities import GIB

CASES = tomllib.loads((Path(__file__).parent / "data" / "user_cases.toml").read_text(encoding="utf-8"))
COLLECTED = Path(__file__).parents[1] / "../shared/data/user_cases.csv"
ONE = {name: (1,) for name in ("tp", "pp", "cp", "ep")}
MEMORY_WITHIN = 0.15
SPEED_WITHIN = 0.25
RIGHT_VERDICTS = 0.9
RIGHT = {
    "out of memory": (Verdict.DOES_NOT_FIT,),
    "fits": (Verdict.FITS, Verdict.TIGHT),
    "borderline": (Verdict.TIGHT, Verdict.DOES_NOT_FIT),
}


def wrong(reason):
    """The mark of a claim that the planner gets wrong today: when it no longer does, the mark has to go."""
    return pytest.mark.xfail(strict=True, raises=AssertionError, reason=reason)


def entries(kind):
    """The claims of one kind, each a test of its own."""
    return [
        pytest.param(
            entry,
            id=f"{entry['case']}: {entry['says']}",
            marks=[wrong(entry["fails"])] if "fails" in entry else [],
        )
        for entry in CASES[kind]
    ]


@pytest.fixture(scope="module")
def ask(tmp_path_factory):
    """A function from an entry, and a change to it, to the question; a cluster of several lines is a file."""
    folder = tmp_path_factory.mktemp("clusters")

    def asked(entry, **change):
        cluster = change.get("cluster") or entry["cluster"]
        if "\n" in cluster:
            path = folder / f"{abs(hash(cluster))}.toml"
            path.write_text(cluster, encoding="utf-8")
            cluster = str(path)
        fix = ",".join(filter(None, (entry.get("fix"), change.get("fix"))))
        options = entry["options"] | change.get("options", {})
        return planner.ask(entry["model"], cluster, planner.Choices(fix=fix, **options))

    return asked


@pytest.fixture(scope="module")
def run(ask):
    """A function from an entry, and a change to it, to the fastest plan within it, or the smallest if none fits."""

    def ran(entry, **change) -> RankedPlan:
        question = ask(entry, **change)
        inputs = question.model, question.cluster, question.workload
        candidates = planner.enumerate_plans(*inputs, stack=question.stack, fix=ONE | question.fix)
        plans = candidates.rows(slice(None))
        ranked = [planner.evaluate(question, plans[i]) for i in range(len(plans))]
        fitting = [one for one in ranked if one.verdict is not Verdict.DOES_NOT_FIT]
        return min(fitting, key=lambda one: one.step_time) if fitting else min(ranked, key=lambda one: one.peak)

    return ran


@pytest.fixture(scope="module")
def verdict(run):
    """A function from the number of an entry to the planner's verdict and plan; host memory counts too."""

    @cache
    def judged(number):
        ranked = run(CASES["verdict"][number])
        node = ranked.question.cluster.node
        on_host = float(ranked.memory.host) * min(node.gpus_per_node, ranked.question.cluster.world_size)
        too_much = node.host_memory and on_host > node.host_memory
        return (Verdict.DOES_NOT_FIT if too_much else ranked.verdict), ranked

    return judged


def measured_as(memory, kind):
    """Bytes of a peak as it was measured."""
    kinds = {"allocated": memory.allocated, "reserved": memory.allocated + memory.reserve, "device": memory.peak}
    return float(kinds[kind])


@pytest.mark.parametrize("entry", entries("verdict"))
def test_runs_fit_or_run_out_of_memory_as_people_reported(verdict, entry):
    given, ranked = verdict(CASES["verdict"].index(entry))
    assert given in RIGHT[entry["expected"]], f"{ranked.peak / GIB:.1f} of {ranked.usable / GIB:.1f} GiB"
    if "moment" in entry:
        assert ranked.moment.name.lower() == entry["moment"]


@wrong("38 of 45, 84 %; the seven stand in the table with their reasons")
def test_nine_in_ten_verdicts_are_right(verdict):
    right = [verdict(i)[0] in RIGHT[entry["expected"]] for i, entry in enumerate(CASES["verdict"])]
    assert np.mean(right) >= RIGHT_VERDICTS


@wrong("UC49 and UC58: buckets and pinned copies of DeepSpeed")
def test_nothing_that_ran_out_of_memory_is_said_to_fit_comfortably(verdict):
    ran_out = [i for i, entry in enumerate(CASES["verdict"]) if entry["expected"] != "fits"]
    assert not [CASES["verdict"][i]["case"] for i in ran_out if verdict(i)[0] is Verdict.FITS]


@pytest.mark.parametrize("entry", entries("memory"))
def test_peak_memory_is_within_15_percent_of_what_people_measured(run, entry):
    predicted = measured_as(run(entry).memory, entry["kind"]) / GIB
    assert predicted == pytest.approx(entry["measured"], rel=MEMORY_WITHIN)


@pytest.mark.parametrize("entry", entries("speed"))
def test_speed_is_within_25_percent_of_what_people_measured(run, entry):
    assert float(run(entry).speed.tokens_per_s_per_gpu) == pytest.approx(entry["measured"], rel=SPEED_WITHIN)


@pytest.mark.parametrize("entry", entries("state"))
def test_training_keeps_as_many_bytes_as_people_counted(run, entry):
    ranked = run(entry)
    asked = ranked.question
    # All gradients are there, and none of what the optimizer's step copies.
    after_backward = memory_timeline(asked.model, ranked.plan, asked.workload, asked.stack)[Role.FIRST, Moment.REDUCE]
    kept = sum(float(getattr(after_backward, item)) for item in entry["items"])
    assert kept == pytest.approx(entry["measured"], rel=entry["within"])


@pytest.mark.parametrize("entry", entries("order"))
def test_plans_are_ranked_as_people_found_them(run, entry):
    first, second = (run(entry, **entry[which]) for which in ("first", "second"))
    ratio = {
        "throughput": lambda: first.speed.tokens_per_s / second.speed.tokens_per_s,
        "throughput per GPU": lambda: first.speed.tokens_per_s_per_gpu / second.speed.tokens_per_s_per_gpu,
        "memory": lambda: first.peak / second.peak,
    }[entry["quantity"]]()
    assert ratio >= entry["at_least"]


def test_the_table_names_every_case_that_was_collected():
    if not COLLECTED.exists():
        pytest.skip("the collection of cases is not here")
    collected = {line.split(",")[0] for line in COLLECTED.read_text(encoding="utf-8").splitlines()[1:]}
    tested_below = {"UC31", "UC36", "UC85", "UC90"}
    assert collected == {entry["case"] for kind in CASES.values() for entry in kind} | tested_below


def test_fits_judges_the_plan_that_is_judged_here(run, ask):
    entry = next(entry for entry in CASES["verdict"] if entry["case"] == "UC44")
    report = planner.fits(ask(entry))
    assert not report.fits
    assert report.ranked.peak == run(entry).peak
    assert report.as_dict()["dominant"] == "optimizer"


def test_uc85_illegal_tensor_parallelism_names_the_degrees_that_28_heads_allow():
    with pytest.raises(planner.SpecError, match=r"28.*1, 2, 4, 7, 14, 28"):
        planner.recommend("qwen2-7b", "7xdgx-h100", planner.Choices(fix="tp=8"))


@pytest.mark.parametrize(("accelerator", "tflops"), [("h100-sxm", 989), ("b200-sxm", 2250), ("gb200", 2500)])
def test_uc90_peaks_are_dense_and_of_the_very_part(accelerator, tflops):
    assert planner.accelerator(accelerator).peak["bf16"] / 1e12 == pytest.approx(tflops, rel=0.01)


@pytest.mark.parametrize("cluster", ["1xdgx-h100", "1xdgx-b200", "1xdgx-a100", "2xrtx-4090"])
@pytest.mark.parametrize("method", ["full", "lora"])
def test_uc90_no_plan_uses_more_than_the_peak(cluster, method):
    best = planner.recommend("llama-3.2-1b", cluster, planner.Choices(method=method)).best
    assert 0 < best.speed.mfu <= best.speed.hfu < 1


def test_uc31_the_parameters_that_were_read_are_said_first():
    assert planner.ask("gpt2", "1xdgx-a100").notes[0] == "read 124.44M parameters from gpt2"


def test_uc36_a_run_has_days_gpu_hours_and_money():
    choices = planner.Choices(tokens="1T", usd_per_gpu_hour=2.5)
    run = planner.recommend("llama-3.1-70b", "8xdgx-h100", choices).best.run
    assert run.gpu_hours == pytest.approx(run.days * 24 * 64)
    assert run.usd_low == pytest.approx(2.5 * run.gpu_hours)


def test_uc56_memory_is_said_per_gpu_and_speed_both_per_gpu_and_in_total():
    sentence = planner.recommend("llama-3.2-1b", "1xdgx-a100").sentence
    assert "usable per GPU" in sentence
    assert "in total" in sentence
    assert "per GPU;" in sentence
