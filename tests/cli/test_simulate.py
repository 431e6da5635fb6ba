import gzip
import json

import pytest

QUESTION = ("llama-3.1-70b", "8xdgx-h100", "--target", "megatron", "--fix")
PIPELINE = (*QUESTION, "tp=4,pp=4,virtual_stages=1,num_microbatches=8")


@pytest.fixture
def table(tmp_path):
    """A table of four equal stages."""
    path = tmp_path / "table.json"
    path.write_text(json.dumps({"num_microbatches": 8, "stages": [{"F": 1, "B": 2}] * 4}))
    return path


def test_the_first_line_says_how_long_a_step_is_and_what_of_it_is_idle(planner):
    result = planner("simulate", *PIPELINE)
    lines = result.stdout.splitlines()
    assert result.exit_code == 0
    assert lines[0].startswith("llama-3.1-70b with TP 4 + PP 4 + ZeRO-1 4 takes ")
    assert "1f1b on 4 pipeline ranks, 8 micro-batches; ranks idle 2" in lines[0]
    assert sum(line.startswith("rank ") for line in lines) == 4
    assert "In closed form: " in result.stdout
    assert lines[-1].startswith("planner simulate llama-3.1-70b 8xdgx-h100 ")


def test_the_json_has_every_rank(planner):
    data = json.loads(planner("simulate", *PIPELINE, "--json").stdout)
    assert data["makespan_s"] == pytest.approx(data["closed_form_step_time_s"], rel=0.05)
    assert [rank["peak_in_flight"] for rank in data["ranks"]] == [4, 3, 2, 1]
    for rank in data["ranks"]:
        assert rank["busy_s"] + rank["exposed_s"] + rank["idle_s"] == pytest.approx(data["makespan_s"])
        assert rank["peak_memory_gib"] > 30
    idle = sum(rank["idle_s"] for rank in data["ranks"]) / 4
    assert data["bubble_fraction"] == pytest.approx(idle / data["makespan_s"])


def test_a_table_of_ones_own_needs_no_model(planner, table):
    data = json.loads(planner("simulate", "--durations", table, "--json").stdout)
    assert (data["makespan_s"], data["bubble_fraction"]) == (33, pytest.approx(3 / 11))
    all_forwards_first = planner("simulate", "--durations", table, "--schedule", "gpipe", "--json")
    assert [rank["peak_in_flight"] for rank in json.loads(all_forwards_first.stdout)["ranks"]] == [8, 8, 8, 8]
    assert planner("simulate", "--durations", table).stdout.startswith("The table takes 33.0 s a step: 1f1b on 4 ")


def test_another_schedule_than_the_plans_is_named_beside_its_own(planner):
    assert "The plan's own schedule, 1f1b, takes " in planner("simulate", *PIPELINE, "--schedule", "zb-h1").stdout


def test_slow_ranks_are_factors_or_accelerators(planner):
    usual = json.loads(planner("simulate", *PIPELINE, "--json").stdout)["makespan_s"]
    for slow in ("1=1.5", "0..3=1.5", "2..3=a100-sxm-80gb", "0=1.1,3=a100-sxm-80gb"):
        assert json.loads(planner("simulate", *PIPELINE, "--slow", slow, "--json").stdout)["makespan_s"] > 1.05 * usual


def test_layers_are_dealt_anew_where_that_shortens_the_step(planner):
    heavy = ("llama-3.1-8b", "2xdgx-h100", "--fix", "pp=4,schedule=1f1b,last_stage_layers=0", "--json")
    even, dealt = planner("simulate", *heavy), planner("simulate", *heavy, "--balance")
    assert dealt.stderr.splitlines()[-1].startswith("balance: the head takes as long as 2.")
    assert json.loads(dealt.stdout)["makespan_s"] < 0.95 * json.loads(even.stdout)["makespan_s"]


def test_trace_and_memory_are_written_beside_the_answer(planner, table, tmp_path):
    trace, memory = tmp_path / "step.json.gz", tmp_path / "memory.json"
    result = planner("simulate", "--durations", table, "--trace", trace, "--memory", memory, "--json")
    assert result.exit_code == 0
    assert {event["pid"] for event in json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]} == {0, 1, 2, 3}
    assert len(json.loads(memory.read_text())["ranks"]) == 4


def test_a_plan_json_is_played_as_it_is(planner, tmp_path):
    planner("recommend", *PIPELINE, "--emit", tmp_path)
    result = planner("simulate", tmp_path / "plan.json")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == f"planner simulate {tmp_path / 'plan.json'}"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "missing MODEL and CLUSTER, a plan.json, or --durations FILE"),
        (("llama-3.1-8b",), "missing CLUSTER"),
        ((*PIPELINE, "--schedule", "1f2b"), "unknown schedule '1f2b'"),
        ((*PIPELINE, "--schedule", "dualpipe-v", "--slow", "x=1"), "--slow: 'x=1'; such as 3=1.2"),
        ((*PIPELINE, "--slow", "2=warm"), "warm"),
        ((*PIPELINE, "--slow", "7=2"), "pipeline ranks 0 to 3"),
        ((*QUESTION, "tp=8,pp=4,num_microbatches=4", "--schedule", "dualpipe-v"), "it needs at least 8"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(planner, arguments, said):
    result = planner("simulate", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr


def test_a_table_goes_with_no_question(planner, table):
    result = planner("simulate", "llama-3.1-8b", "1xdgx-h100", "--durations", table)
    assert result.exit_code == 2
    assert "leave out MODEL, CLUSTER" in result.stderr


def test_files_that_are_no_tables_or_schedules_exit_4(planner, tmp_path, table):
    (tmp_path / "own.csv").write_text("0F0,0B0\n1F0,1X0\n")
    for arguments in (
        ("--durations", tmp_path / "none.json"),
        ("--durations", table, "--schedule", tmp_path / "own.csv"),
    ):
        result = planner("simulate", *arguments)
        assert (result.exit_code, len(result.stderr.splitlines())) == (4, 1)


def test_ranks_that_wait_for_each_other_are_named(planner, tmp_path):
    own, table = tmp_path / "own.csv", tmp_path / "table.json"
    own.write_text("0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n")
    table.write_text(json.dumps({"num_microbatches": 2, "stages": [{"F": 1, "B": 2}] * 2}))
    result = planner("simulate", "--durations", table, "--schedule", own)
    assert result.exit_code == 2
    said = "rank 0 waits with 0B0 for 1B0 of rank 1; rank 1 waits with 1F1 for 0F1 of rank 0"
    assert result.stderr == f"planner: the schedule stops: {said}\n"


def test_check_puts_closed_forms_beside_the_simulation(planner):
    result = planner("check", *PIPELINE)
    assert result.stdout.startswith("llama-3.1-70b with TP 4 + PP 4 + ZeRO-1 4: ")
    assert "pipeline bubble" in result.stdout
    data = json.loads(planner("check", *PIPELINE, "--json").stdout)
    for side in ("closed_form", "simulated"):
        assert sum(term[f"{side}_s"] for term in data["terms"]) == pytest.approx(data[f"{side}_step_time_s"])
    assert abs(data["difference"]) < 0.03
