import json

import pytest

RECOMMEND = ("recommend", "llama-3.1-8b", "2xdgx-h100")

WRONG = [
    (("recommend", "lama-3.1-8b", "2xdgx-h100"), 2, "unknown model 'lama-3.1-8b'; did you mean llama-3.1-8b"),
    (("recommend", "llama-3.1-8b", "2xdgx-h10"), 2, "did you mean dgx-h100"),
    (("recommend", "llama-3.1-8b", "64xh10-sxm"), 2, "h100-sxm"),
    (("recommend", "llama-3.1-8b", "0xdgx-h100"), 2, "0xdgx-h100: must be 1 to"),
    (("recommend", "llama-3.1-8b", "12xh100-sxm"), 2, "12 h100-sxm"),
    (("recommend", "llama-3.1-8b", "dgx-h100"), 2, "<nodes>x<node type>"),
    (("recommend", "llama-3.1-8b"), 2, "Missing argument 'CLUSTER'"),
    ((*RECOMMEND, "--fix", "tp=3"), 2, "--fix: TP 3 does not divide "),
    (("recommend", "qwen2-7b", "2xdgx-h100", "--fix", "tp=8"), 2, "TP 8 does not divide 28 attention heads; poss"),
    ((*RECOMMEND, "--global-batch-size", "100", "--fix", "dp=16"), 2, "DP 16 does not divide the global batch of 100"),
    ((*RECOMMEND, "--fix", "warp=9"), 2, "unknown field 'warp'"),
    ((*RECOMMEND, "--fix", "tp"), 2, "'tp' has no value; write tp=..."),
    ((*RECOMMEND, "--fix", "sharding=zero9"), 2, "unknown sharding 'zero9'; possible: none, ddp"),
    ((*RECOMMEND, "--global-batch-size", "4gbps"), 2, "unknown unit 'gbps'; write sequences (1024) or tokens"),
    ((*RECOMMEND, "--tokens", "3Z"), 2, "--tokens: unknown unit 'Z'; known: k, M, B, G, T"),
    ((*RECOMMEND, "--seq-len", "0"), 2, "--seq-len: must be 1 to 16,777,216, not 0"),
    ((*RECOMMEND, "--seq-len", "1" + 30 * "0"), 2, "--seq-len: must be 1 to 16,777,216, not 1,000,"),
    ((*RECOMMEND, "--global-batch-size", "33554433"), 2, "batch-size: must be at most 33,554,432 sequences"),
    ((*RECOMMEND, "--global-batch-size", "1e400"), 2, "batch-size: must be at most 33,554,432 sequences"),
    ((*RECOMMEND, "--global-batch-size", "1e300Ttok"), 2, "batch-size: must be at most 33,554,432 sequences"),
    ((*RECOMMEND, "--tokens", "1e400"), 2, "--tokens: must be 1 to 1e+24 tokens"),
    ((*RECOMMEND, "--tokens", "0"), 2, "--tokens: must be 1 to 1e+24 tokens"),
    ((*RECOMMEND, "--lora-rank", "8"), 2, "--lora-rank: needs --method lora or qlora"),
    ((*RECOMMEND, "--lora-rank", "1" + 30 * "0", "--method", "lora"), 2, "--lora-rank: must be 1 to 65,536"),
    ((*RECOMMEND, "--seq-len", "long"), 2, "'long' is not a valid integer"),
    ((*RECOMMEND, "--precision", "nvfp4"), 2, "h100-sxm has no nvfp4 matrix peak; it has: bf16"),
    ((*RECOMMEND, "--precision", "bf17"), 2, "'bf17' is not one of"),
    ((*RECOMMEND, "--network", "ib-ndr4000"), 2, "--network: unknown network 'ib-ndr4000'; did you mean ib-ndr400"),
    ((*RECOMMEND, "--stack", "megatronn"), 2, "--stack: unknown stack 'megatronn'; did you mean megatron"),
    ((*RECOMMEND, "--target", "torchtitanic"), 2, "--target: unknown target 'torchtitanic'; did you mean torchtitan"),
    ((*RECOMMEND, "--profile", "none.json"), 4, "none.json"),
    ((*RECOMMEND, "--stack", ""), 2, "--stack: unknown stack ''"),
    ((*RECOMMEND, "--network", ""), 2, "--network: unknown network ''"),
    ((*RECOMMEND, "--profile", "h1000"), 2, "--profile: unknown accelerator 'h1000'; did you mean h100"),
    ((*RECOMMEND, "--profile", "h100/megatronn"), 2, "--profile: unknown stack 'megatronn'; did you mean megatron"),
    ((*RECOMMEND, "--usd-per-gpu-hour", "-1"), 2, "--usd-per-gpu-hour: must be 0 to 1e+06, not -1"),
    ((*RECOMMEND, "--usd-per-gpu-hour", "nan"), 2, "--usd-per-gpu-hour: must be 0 to 1e+06, not nan"),
    ((*RECOMMEND, "--usd-per-gpu-hour", "inf"), 2, "--usd-per-gpu-hour: must be 0 to 1e+06, not inf"),
    ((*RECOMMEND, "--usd-per-gpu-hour", "0"), 2, "--usd-per-gpu-hour: must be above zero"),
    ((*RECOMMEND, "--top", "0"), 2, "'--top'"),
    (("recommend", "llama-3.1-405b", "1xdgx-h100"), 3, "none of"),
    (("recommend", "nowhere/config.json", "2xdgx-h100"), 4, "nowhere/config.json"),
    (("recommend", "llama-3.1-8b", "nowhere.toml"), 4, "nowhere.toml"),
    (("fits", "llama-3.1-8b"), 2, "missing CLUSTER, such as 2xdgx-h100"),
    (("explain", "nowhere/plan.json"), 4, "nowhere/plan.json"),
    (("explain", "plan.json", "--seq-len", "8"), 2, "leave out --seq-len"),
    (("show", "h" * 300), 2, "unknown name 'hhh"),
    (("show", "h1000"), 2, "unknown name 'h1000'; did you mean h100"),
    (("ls", "modles"), 2, "'modles' is not one of 'models'"),
    (("topo", "show", "2xdgx-h100", "--tp", "3"), 2, "which does not divide 16 GPUs"),
    (("topo", "show", "2xdgx-h100", "--rank-order", "tp_pp"), 2, "unknown rank order 'tp_pp'"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "code", "message"), WRONG, ids=[" ".join(line) for line, _, _ in WRONG])
def test_a_wrong_line_is_answered_in_one_line_with_its_exit_code(planner, line, code, message):
    result = planner(*line)
    assert message in result.stderr
    assert result.exit_code == code
    assert result.stdout == ""
    failure = [each for each in result.stderr.splitlines() if not each.startswith(("note: ", "assumed: "))]
    assert len(failure) == 1
    assert failure[0].startswith("planner: ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "config.json"),
        ("{", "config.json"),
        ("[1, 2]", "list"),
        ('{"model_type": "llama", "num_hidden_layers": -4}', "num_hidden_layers"),
        ('{"model_type": "mamba2"}', "mamba2"),
    ],
)
def test_a_config_that_is_no_model_is_refused_with_its_path(planner, tmp_path, text, message):
    path = tmp_path / "config.json"
    path.write_text(text)
    result = planner("recommend", path, "2xdgx-h100")
    assert result.exit_code in (2, 4)
    assert result.stderr.count("\n") == 1
    assert str(path) in result.stderr
    assert message in result.stderr


def test_an_unreadable_file_is_a_file_error(planner, tmp_path):
    result = planner("recommend", tmp_path / "config.json", "2xdgx-h100")
    assert result.exit_code == 4
    folder = planner("explain", tmp_path / "plan.json")
    assert folder.exit_code == 4


def test_nothing_fits_says_what_is_missing_and_what_would_help(planner):
    result = planner("recommend", "llama-3.1-70b", "1xdgx-h100", "--quiet")
    assert result.exit_code == 3
    assert "the smallest needs" in result.stderr
    assert "it would fit with" in result.stderr


def test_a_plan_json_that_was_changed_is_refused(planner, tmp_path):
    planner(*RECOMMEND, "--emit", tmp_path)
    path = tmp_path / "plan.json"
    data = json.loads(path.read_text())
    data["plan"]["tp"] = 64
    path.write_text(json.dumps(data))
    result = planner("fits", path)
    assert result.exit_code == 4
    assert "but the cluster has 16" in result.stderr


def test_a_plan_json_that_nobody_could_run_is_refused(planner, tmp_path):
    planner(*RECOMMEND, "--emit", tmp_path)
    path = tmp_path / "plan.json"
    data = json.loads(path.read_text())
    data["plan"]["virtual_stages"] = 10**9
    path.write_text(json.dumps(data))
    result = planner("explain", path)
    assert result.exit_code == 4
    assert "the plan is not legal: " in result.stderr
