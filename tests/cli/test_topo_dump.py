"""`planner topo show` and `planner topo check` on what machines print."""

import json
import os
import shlex
import threading

import pytest

from tests.dumps.samples import DATA, all_linked, matrix
from tests.dumps.test_findings import port


@pytest.fixture
def host(tmp_path):
    """A file with the matrix of eight GPUs."""
    path = tmp_path / "host.txt"
    path.write_text(matrix(all_linked(8), tails=["0-31\t0"] * 4 + ["32-63\t1"] * 4))
    return path


def test_a_dump_is_shown_with_its_node_and_groups(planner, host):
    result = planner("topo", "show", host, "--gpu", "h100-sxm", "--nodes", "2")
    assert result.exit_code == 0
    assert "18 direct links (NV18): every pair of the 8 GPUs" in result.stdout
    assert "host: 16 GPUs in 2 nodes" in result.stdout
    assert "one switch for 8 GPUs (nvlink4): 450.0 GB/s per GPU" in result.stdout
    assert "TP 8 + FSDP 2" in result.stdout
    assert "assumed: " in result.stderr
    assert "as in hgx-h100" in result.stderr


def test_a_dump_of_unnamed_gpus_is_shown_without_a_node(planner, host):
    result = planner("topo", "show", host)
    assert result.exit_code == 0
    assert "every pair of the 8 GPUs" in result.stdout
    assert "--gpu: which accelerator it is has to be said" in result.stderr


def test_json_has_everything_that_was_read(planner, host):
    data = json.loads(planner("topo", "show", host, "--gpu", "h100", "--json").stdout)
    assert (data["schema_version"], data["formats"], data["gpus"]) == (1, ["nvidia-smi topo -m"], 8)
    assert data["read"]["topology"]["pairs"]["0/1"] == {
        "kind": "NV18", "links": 18, "path": "", "nccl_bandwidth": None,
    }  # fmt: skip
    assert data["node"]["link_bandwidth"]["value"] == 450
    assert data["groups"][0]["group"] == "dp_shard"
    assert data["lacking"] is None


def test_the_written_cluster_is_what_other_commands_take(planner, host, tmp_path):
    written = tmp_path / "mine.toml"
    shown = planner("topo", "show", host, "--gpu", "h100-sxm", "--nodes", "2", "--toml", written)
    assert f"planner recommend llama-3.1-8b {written}" in shown.stdout
    plan = planner("recommend", "llama-3.1-8b", written, "--quiet", "--json")
    named = planner("recommend", "llama-3.1-8b", "2xhgx-h100", "--quiet", "--json")
    times = [json.loads(result.stdout)["plans"][0]["step_time_s"] for result in (plan, named)]
    assert times[0] == pytest.approx(times[1], rel=0.02)


def test_a_cluster_file_is_replaced_by_force_only_and_never_made_of_nothing(planner, host, tmp_path):
    written = tmp_path / "mine.toml"
    line = ("topo", "show", host, "--gpu", "h100-sxm", "--toml", written)
    assert planner(*line).exit_code == 0
    written.write_text("mine")
    again = planner(*line)
    assert again.exit_code == 2
    assert "is there already" in again.stderr
    assert written.read_text() == "mine"
    assert planner(*line, "--force").exit_code == 0
    assert planner("topo", "show", host, "--toml", tmp_path / "other.toml").exit_code == 2
    assert not (tmp_path / "other.toml").exists()
    assert "ends in .toml" in planner(*line[:-1], tmp_path / "mine.txt").stderr


def test_degrees_and_network_hold_for_dumps_too(planner, host):
    result = planner("topo", "show", host, "--gpu", "h100", "--nodes", "2", "--tp", "4", "--network", "tcp-10", "-h")
    assert result.exit_code == 0
    shown = planner("topo", "show", host, "--gpu", "h100", "--nodes", "2", "--tp", "4", "--network", "tcp-10").stdout
    assert "TP 4 + FSDP 4" in shown
    assert "TP 8" not in shown
    assert "(ethernet)" in shown


@pytest.mark.parametrize("option", [("--gpu", "h100"), ("--nodes", "2"), ("--toml", "x.toml"), ("--force",)])
def test_options_of_dumps_are_refused_for_clusters(planner, option):
    result = planner("topo", "show", "2xdgx-h100", *option)
    assert result.exit_code == 2
    assert f"{option[0]} is for a file that a machine printed" in result.stderr


def test_a_cluster_file_by_another_name_is_still_a_cluster(planner, tmp_path):
    path = tmp_path / "cluster"
    path.write_text('nodes = 2\nnode = "dgx-h100"\n')
    assert "16 GPUs in 2 nodes" in planner("topo", "show", path).stdout


@pytest.mark.parametrize(
    ("text", "said"),
    [("nonsense", "is of no known format"), ("", "is empty"), ("<system>\n<cpu>", "line 2: XML that cannot be parsed")],
)
def test_files_that_are_no_dump_are_refused_in_one_line(planner, tmp_path, text, said):
    path = tmp_path / "x.txt"
    path.write_text(text)
    for command in ("show", "check"):
        result = planner("topo", command, path)
        assert result.exit_code == 4
        assert said in result.stderr
        assert len(result.stderr.splitlines()) == 1


def test_a_missing_file_is_said_to_be_missing(planner):
    result = planner("topo", "show", "none.txt")
    assert result.exit_code == 4
    assert "none.txt: cannot be read: No such file" in result.stderr


def test_a_healthy_host_has_nothing_wrong(planner, host):
    result = planner("topo", "check", host)
    assert (result.exit_code, result.stdout) == (0, f"{host}: nothing looks wrong (links between GPUs)\n")


def test_findings_have_a_reason_and_a_command(planner, tmp_path):
    path = tmp_path / "host.txt"
    path.write_text(matrix(all_linked(8, broken=[(2, 5)])))
    result = planner("topo", "check", path)
    assert result.exit_code == 0
    assert "1 thing looks wrong" in result.stdout
    assert "GPUs 2 and 5 are joined by SYS only" in result.stdout
    assert "because the others have 126 direct links each" in result.stdout
    assert "run: nvidia-smi nvlink -s -i 2,5" in result.stdout


def test_files_of_one_host_are_checked_together_and_hosts_apart(planner, host, tmp_path):
    ports = tmp_path / "ports.txt"
    ports.write_text(port() + port("mlx5_1", state="Down", physical="Polling"))
    together = json.loads(planner("topo", "check", host, ports, "--json").stdout)
    assert [each["file"] for each in together["hosts"]] == [f"{host}, {ports}"]
    assert [finding["what"] for finding in together["hosts"][0]["findings"]] == ["mlx5_1 port 1 is down"]
    apart = json.loads(planner("topo", "check", host, host, "--json").stdout)
    assert len(apart["hosts"]) == 2


def test_a_named_accelerator_is_held_against_its_usual_node(planner, tmp_path):
    path = tmp_path / "host.txt"
    path.write_text(matrix(all_linked(2, "PHB")))
    assert "nothing looks wrong" in planner("topo", "check", path).stdout
    assert "no direct link between any two GPUs" in planner("topo", "check", path, "--gpu", "h100").stdout
    assert planner("topo", "check", path, "--gpu", "h1000").exit_code == 2


def test_the_reason_for_refusing_a_real_file_is_plain(planner):
    result = planner("topo", "show", DATA / "xml_aws_g5.48xl.xml")
    assert result.exit_code == 4
    assert "line 14: NCCL topology XML whose 9 devices have no class" in result.stderr


def test_narrow_windows_wrap_what_was_read(planner, host):
    shown = planner("topo", "show", host, "--gpu", "h100", COLUMNS="60").stdout
    assert all(len(line) <= 60 or "node" in line or "GB/s" in line for line in shown.splitlines())


def test_a_pipe_is_what_a_machine_printed(planner, host, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=(host.read_text(),))
    writer.start()
    result = planner("topo", "show", pipe)
    writer.join()
    assert "every pair of the 8 GPUs" in result.stdout


def test_the_command_for_a_written_cluster_takes_its_name_as_one_word(planner, host, tmp_path):
    path = tmp_path / "my cluster.toml"
    result = planner("topo", "show", host, "--gpu", "h100-sxm", "--toml", path)
    command = shlex.split(result.stdout.splitlines()[-1])
    assert command == ["planner", "recommend", "llama-3.1-8b", str(path)]
