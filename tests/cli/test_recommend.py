import json
import os
import re
import subprocess
import sys

import pytest

QUESTION = ("recommend", "llama-3.1-8b", "2xdgx-h100")
KEYS = {
    "schema_version", "model", "cluster", "workload", "profile", "evaluated", "feasible", "rejected", "search_seconds",
    "plans",
}  # fmt: skip
PLAN_KEYS = {
    "rank", "plan", "step_time_s", "step_time_interval_s", "level", "tie", "tokens_per_s", "tokens_per_s_per_gpu",
    "samples_per_s", "mfu", "hfu", "peak_memory_gib", "usable_memory_gib", "memory_verdict", "p_fits",
    "time_breakdown_s", "memory_breakdown_gib", "usd_per_million_tokens",
}  # fmt: skip


def answer(planner, *options, question=QUESTION):
    result = planner(*question, *options)
    assert result.exit_code == 0, result.stderr
    return result


@pytest.fixture(scope="module")
def command():
    """A process of its own: what a person at a shell gets."""

    def run(*arguments, **environment):
        plain = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "NO_COLOR", "FORCE_COLOR")}
        line = [sys.executable, "-m", "planner", *arguments]
        return subprocess.run(line, capture_output=True, text=True, check=False, env=plain | environment)

    return run


def test_first_line_is_the_answer_and_last_line_the_question(planner):
    result = answer(planner)
    first, *_, last = result.stdout.splitlines()
    assert first.startswith("Train llama-3.1-8b on 2xdgx-h100 (16 GPUs) with ")
    for part in ("per step (", "tokens/s in total", "per GPU", "GiB usable per GPU"):
        assert part in first
    assert last.startswith("planner recommend llama-3.1-8b 2xdgx-h100 --seq-len 4096 --global-batch-size 128 ")


def test_the_last_line_asks_the_same_question_again(planner):
    first = answer(planner, "--tokens", "1T", "--fix", "tp=1..2,sharding=fsdp|hsdp", "--top", "3").stdout
    again = planner(*re.findall(r"'[^']*'|\S+", first.splitlines()[-1].replace("'", ""))[1:])
    assert again.exit_code == 0, again.stderr
    assert again.stdout == first
    assert "assumed" not in again.stderr


def test_table_has_units_the_peak_of_mfu_and_both_per_gpu_and_total(planner):
    out = answer(planner).stdout
    for heading in ("(s)", "tokens/s", "total", "per GPU", "989 TFLOP/s", "GPU (GiB)", "USD per", "80 % (s)"):
        assert heading in out


def test_what_was_assumed_is_said_on_stderr_and_not_when_given(planner):
    assert "assumed: sequence length 4,096; global batch 128 sequences = 524,288 tokens" in answer(planner).stderr
    given = answer(planner, "--seq-len", "2048", "--global-batch-size", "256").stderr
    assert "sequence length" not in given
    assert "global batch" not in given
    assert answer(planner, "--quiet").stderr == ""


def test_reasons_compare_with_the_next_and_with_other_families(planner):
    out = answer(planner).stdout
    assert re.search(r"^next: .+ (more time: .+ more |takes the same time )", out, re.M)
    assert re.search(r"^limit: \w+ takes \d+% of the step", out, re.M)
    assert len(re.findall(r"^instead: ", out, re.M)) >= 3
    assert re.search(r"^instead: pure DDP: no plan fits, the smallest needs 1\d\d\.\d GiB per GPU", out, re.M)
    assert re.search(r"^fit: [\d,]+ of [\d,]+ legal plans", out, re.M)


def test_money_and_days_of_a_whole_run(planner):
    out = answer(planner, "--tokens", "1T", "--usd-per-gpu-hour", "2.5").stdout
    run = re.search(r"run: 1.00T tokens take ([\d.,]+) days, ([\d,]+) GPU-hours, ([\d,]+) USD \(at 2.5 USD", out)
    hours, usd = (float(text.replace(",", "")) for text in run.groups()[1:])
    assert usd == pytest.approx(2.5 * hours, rel=1e-3)


def test_catalogue_price_is_a_dated_range(planner):
    assert re.search(
        r"to [\d,]+ USD \(at [\d.]+ to [\d.]+ USD per GPU-hour, prices of 20\d\d",
        answer(planner, "--tokens", "1T").stdout,
    )


def test_json_has_every_promised_key(planner):
    data = json.loads(answer(planner, "--json").stdout)
    assert data["schema_version"] == 1
    assert data.keys() >= KEYS
    assert len(data["plans"]) == 5
    for place, entry in enumerate(data["plans"], start=1):
        assert entry.keys() >= PLAN_KEYS
        assert entry["rank"] == place
        low, high = entry["step_time_interval_s"]
        assert 0 < low < entry["step_time_s"] < high
        assert sum(entry["time_breakdown_s"].values()) == pytest.approx(entry["step_time_s"])
        assert sum(entry["memory_breakdown_gib"].values()) == pytest.approx(entry["peak_memory_gib"])
        assert entry["memory_verdict"] in ("fits", "tight", "does_not_fit")
        assert entry["tokens_per_s"] == pytest.approx(16 * entry["tokens_per_s_per_gpu"])
        plan = entry["plan"]
        assert plan["tp"] * plan["pp"] * plan["cp"] * plan["dp_shard"] * plan["dp_replicate"] == 16
    times = [entry["step_time_s"] for entry in data["plans"]]
    assert times == sorted(times)
    assert data["evaluated"] >= data["feasible"] > 0
    assert all(isinstance(count, int) for count in data["rejected"].values())


def test_same_input_same_output_but_for_the_search_seconds(planner):
    assert answer(planner).stdout == answer(planner).stdout
    first, second = (json.loads(answer(planner, "--json").stdout) for _ in range(2))
    assert first.pop("search_seconds") > 0
    assert second.pop("search_seconds") > 0
    assert first == second


@pytest.mark.parametrize("objective", ["throughput", "usd", "memory"])
def test_objective_orders_the_plans(planner, objective):
    plans = json.loads(answer(planner, "--objective", objective, "--json").stdout)["plans"]
    key = {"throughput": "step_time_s", "usd": "usd_per_million_tokens", "memory": "peak_memory_gib"}[objective]
    values = [plan[key] for plan in plans]
    assert values == sorted(values)


def test_fix_holds_in_every_plan(planner):
    plans = json.loads(answer(planner, "--fix", "tp=2,pp=1..2,recompute=full", "--json").stdout)["plans"]
    assert {plan["plan"]["tp"] for plan in plans} == {2}
    assert {plan["plan"]["recompute"] for plan in plans} == {"full"}
    assert {plan["plan"]["pp"] for plan in plans} <= {1, 2}


def test_explain_adds_formulas_and_sources(planner):
    out = answer(planner, "--explain", "--top", "1").stdout
    assert "t = max(2 m n k / (P e)" in out
    assert "cost.kernels.matmul_time: roofline (Williams et al. 2009)" in out
    assert "Peak memory" in out


@pytest.mark.parametrize("columns", [40, 60, 80, 120])
def test_a_narrow_window_stays_legible(planner, columns):
    result = planner(*QUESTION, COLUMNS=str(columns))
    *body, last = result.stdout.splitlines()
    assert max(len(line) for line in body) <= columns
    assert last.startswith("planner recommend ")
    assert "step time" in result.stdout


def test_names_of_plans_are_explained_below_the_table(planner):
    out = answer(planner, "--fix", "pp=2,vpp=2,sharding=hsdp", "--quiet").stdout
    assert re.search(r"^names: PP 2x2: 2 pipeline stages of 2 chunks; ", out, re.M)


def test_without_a_second_plan_nothing_is_called_the_next(planner):
    out = answer(planner, "--top", "1", "--quiet").stdout
    assert "\ninstead: " in out
    assert "\nnext: " not in out


def test_tokens_are_repeated_as_they_were_asked(planner):
    result = answer(planner, "--tokens", "15.6T", "--usd-per-gpu-hour", "2.123456789", "--quiet")
    assert " --tokens 15.6T --usd-per-gpu-hour 2.123456789 " in result.stdout.splitlines()[-1]


def test_an_emitted_plan_is_judged_again_by_its_file_or_folder_alone(planner, tmp_path):
    answer(planner, "--emit", tmp_path)
    path = tmp_path / "plan.json"
    for command in ("fits", "explain"):
        result = planner(command, tmp_path, "--quiet")
        assert result.exit_code == 0, result.stderr
        assert result.stdout.splitlines()[-1] == f"planner {command} {path}"
        assert result.stdout == planner(command, path, "--quiet").stdout


def test_emit_writes_a_plan_that_fits_and_explain_read(planner, tmp_path):
    result = answer(planner, "--emit", tmp_path / "run")
    path = tmp_path / "run" / "plan.json"
    assert f"wrote {path}" in result.stderr
    best = json.loads(answer(planner, "--json").stdout)["plans"][0]
    written = json.loads(path.read_text())
    assert written["plan"] == best["plan"]
    assert written["prediction"]["step_time_s"] == best["step_time_s"]
    read = json.loads(planner("explain", path, "--json").stdout)
    assert read["prediction"]["step_time_s"] == pytest.approx(best["step_time_s"])
    assert read["prediction"]["peak_memory_gib"] == pytest.approx(best["peak_memory_gib"])
    assert planner("fits", path).exit_code == 0


def test_a_kept_plan_is_replaced_only_by_force(planner, tmp_path):
    answer(planner, "--emit", tmp_path)
    before = (tmp_path / "plan.json").read_text()
    refused = planner(*QUESTION, "--fix", "tp=2", "--emit", tmp_path)
    assert refused.exit_code == 2
    assert refused.stderr.splitlines()[-1] == (
        f"planner: --force: {tmp_path / 'plan.json'} is there already; --force replaces it"
    )
    assert (tmp_path / "plan.json").read_text() == before
    answer(planner, "--fix", "tp=2", "--emit", tmp_path, "--force")
    assert json.loads((tmp_path / "plan.json").read_text())["plan"]["tp"] == 2


def test_force_without_a_folder_is_refused(planner):
    result = planner(*QUESTION, "--force")
    assert result.exit_code == 2
    assert "--emit DIR" in result.stderr


def test_recommend_writes_what_runs_the_best_plan(planner, tmp_path):
    result = answer(planner, "--emit", tmp_path / "run", "--target", "slurm")
    assert f"start it with: cd {tmp_path / 'run'} && sbatch job.sbatch" in result.stderr
    assert (tmp_path / "run" / "job.sbatch").exists()
    assert json.loads((tmp_path / "run" / "plan.json").read_text())["stack"]["name"] == "pytorch"
    assert result.stdout == planner(*QUESTION, "--target", "slurm", "--quiet").stdout


def test_target_restricts_the_search_to_what_it_can_express(planner):
    plans = json.loads(answer(planner, "--target", "accelerate", "--top", "50", "--json").stdout)["plans"]
    assert {plan["plan"]["pp"] for plan in plans} == {1}


def test_adapters_need_less_memory_than_full_training(planner):
    one = ("recommend", "llama-3.1-8b", "1xrtx-4090")
    assert planner(*one).exit_code == 3
    lora = json.loads(answer(planner, "--method", "qlora", "--json", question=one).stdout)
    assert lora["plans"][0]["peak_memory_gib"] < 24


def test_a_process_prints_to_a_pipe_without_colour_and_loads_no_torch(command):
    code = (
        "import sys\nfrom planner.cli.main import main\n"
        f"try:\n    main({QUESTION!r})\nexcept SystemExit as left:\n    assert not left.code\n"
        "print([name for name in ('torch', 'scipy', 'pandas', 'matplotlib', 'streamlit') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.endswith("[]\n")
    assert "\x1b" not in result.stdout


def test_no_colour_is_respected_in_a_terminal(command):
    import pty

    def through_a_terminal(**environment):
        main_end, other_end = pty.openpty()
        plain = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "COLUMNS")}
        plain |= {"TERM": "xterm-256color", "COLUMNS": "120"} | environment
        line = [sys.executable, "-m", "planner", *QUESTION, "--quiet", "--top", "2"]
        with subprocess.Popen(line, stdout=other_end, stderr=subprocess.DEVNULL, env=plain) as process:
            os.close(other_end)
            seen = b""
            while True:
                try:
                    part = os.read(main_end, 65536)
                except OSError:
                    break
                if not part:
                    break
                seen += part
            assert process.wait() == 0
        os.close(main_end)
        return seen

    assert b"\x1b[" in through_a_terminal()
    assert b"\x1b[" not in through_a_terminal(NO_COLOR="1")


def test_the_console_script_answers(command):
    result = command(*QUESTION)
    assert result.returncode == 0
    assert result.stdout.startswith("Train llama-3.1-8b")


def test_json_of_a_refusal_has_the_reasons_and_no_plans(planner):
    result = planner("recommend", "llama-3.1-70b", "1xdgx-h100", "--json")
    assert result.exit_code == 3
    data = json.loads(result.stdout)
    assert (data["plans"], data["feasible"]) == ([], 0)
    assert sum(data["rejected"].values()) > 0
    assert "it would fit with" in data["message"]


def test_speed_of_an_encoder_is_in_samples(planner):
    out = answer(planner, question=("recommend", "bert-large", "2xdgx-a100")).stdout
    assert re.search(r"[\d,]+ samples/s in total, [\d.,]+ per GPU", out)
    assert "tokens/s" not in out
