import importlib.util
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from planner.answer.emission import emission, emit
from planner.emit import pytorch
from planner.emit.job import Program, Variable

HAS_TORCH = importlib.util.find_spec("torch") is not None
FAKE_TRAINER = """
import os, sys
line = " ".join([os.environ["RANK"], os.environ["WORLD_SIZE"], os.environ["LOCAL_RANK"], *sys.argv[1:]])
os.write(1, (line + "\\n").encode())
"""


@pytest.fixture
def real(tmp_path):
    """Runs launch.sh under the real torchrun, with a trainer that only says its rank; starts all, then waits."""
    programs = Path(shutil.which("torchrun", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}") or "/").parent

    def run(folder, *words, nodes=({},), trainer=FAKE_TRAINER):
        (folder / "trainer" / "__main__.py").write_text(trainer)
        environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
        started = [
            subprocess.Popen(
                [folder / "launch.sh", *words],
                cwd=tmp_path,
                env=environment | variables,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for variables in nodes
        ]
        outputs = [process.communicate(timeout=240) for process in started]
        assert [process.returncode for process in started] == [0] * len(started), outputs
        return sorted((line for out, _ in outputs for line in out.splitlines()), key=lambda line: int(line.split()[0]))

    return run


def test_the_script_is_right_for_bash(text_of, contents, shell_problems):
    assert shell_problems(text_of(contents, "torchrun", "launch.sh")) == ""


def test_the_script_says_what_to_expect(text_of, plan):
    text = text_of(plan("eight A100 on PCIe"), "torchrun", "launch.sh")
    prediction = plan("eight A100 on PCIe").prediction
    for line in (
        r"# written by: planner 0.1.0 for torchrun of torch 2.13 and the planner's own trainer (torch 2.11 and later)",
        "# model: llama-3.1-8b",
        "# cluster: 1xpcie-8x-a100-80gb: 8 GPUs, 1 node of 8 x a100-pcie-80gb",
        f"# expected speed: {prediction['tokens_per_s']:,.0f} tokens/s in total",
        f"# expected memory: peak of {prediction['peak_memory_gib']:.1f} GiB per GPU of ",
        "# question: planner recommend llama-3.1-8b 1xpcie-8x-a100-80gb ",
    ):
        assert f"\n{line}" in text
    assert " with 80 % probability)\n" in text
    assert "\n# calibration: " in text


def test_a_plan_without_a_prediction_says_so(text_of, plan):
    text = text_of(replace(plan("eight A100 on PCIe"), prediction={}), "torchrun", "launch.sh")
    assert "\n# calibration: none: the plan.json holds no prediction\n" in text
    assert "expected" not in text


def test_one_node_is_started_by_the_script_alone(plan, folder_of, bench, arguments):
    folder = folder_of(plan("two consumer cards"), "torchrun")
    given = arguments(bench(folder / "launch.sh", "--device", "cpu", "--steps", "3", cwd="/"))
    assert given[:5] == ["--standalone", "--nproc-per-node", "2", "--max-restarts", "0"]
    assert given[5:] == ["-m", "trainer", "plan.json", "--device", "cpu", "--steps", "3"]


def test_several_nodes_meet_at_the_head(plan, folder_of, bench, arguments):
    folder = folder_of(plan("four nodes with RoCE"), "torchrun")
    given = arguments(bench(folder / "launch.sh", "--device", "cpu", HEAD="node001", NODE_RANK="2", PORT="1234"))
    pairs = dict(zip(given[:-5:2], given[1:-5:2], strict=True))
    assert pairs.pop("--rdzv-id").startswith("llama-3-1-70b-")
    assert pairs == {
        "--nnodes": "4",
        "--nproc-per-node": "8",
        "--max-restarts": "3",
        "--rdzv-backend": "c10d",
        "--rdzv-endpoint": "node001:1234",
        "--rdzv-conf": "read_timeout=600,is_host=0",
    }


def test_without_a_head_several_nodes_do_not_fall_back_to_this_machine(plan, folder_of, bench):
    result = bench(folder_of(plan("four nodes with RoCE"), "torchrun") / "launch.sh", "--device", "cpu")
    assert result.returncode == 1
    assert "HEAD is not set: the name of the first node, the same on every node" in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize("case", ["two consumer cards", "four nodes with RoCE"])
@pytest.mark.parametrize("nodes", ["3", "0", "08", "x", "a[$(touch pwned)]"])
def test_another_number_of_nodes_than_planned_is_refused(plan, folder_of, bench, case, nodes):
    folder = folder_of(plan(case), "torchrun")
    result = bench(folder / "launch.sh", "--device", "cpu", HEAD="a", NNODES=nodes)
    assert result.returncode == 1
    assert result.stderr.startswith(f"launch: the plan is for {plan(case).plan.world_size} processes (")
    assert not (folder / "pwned").exists()


def test_too_few_gpus_are_refused_and_the_way_without_is_named(plan, folder_of, bench):
    (bench.programs / "python3").write_text("#!/bin/sh\necho 1\n")
    (bench.programs / "python3").chmod(0o755)
    result = bench(folder_of(plan("two consumer cards"), "torchrun") / "launch.sh")
    assert result.returncode == 1
    hint = "has 1 GPUs, the plan wants 2; without GPUs: --device cpu --shrink --steps 3"
    assert hint in result.stderr


def test_an_elastic_run_of_our_own_trainer_lets_the_replicas_follow(plan, folder_of, bench, arguments):
    folder = folder_of(plan("four nodes with RoCE"), "torchrun")
    given = arguments(bench(folder / "launch.sh", "--device", "cpu", HEAD="a", NNODES="2:8"))
    assert given[:2] == ["--nnodes", "2:8"]
    assert given[-3:] == ["--elastic", "--device", "cpu"]


def test_an_elastic_run_of_another_program_is_refused(plan, tmp_path, bench, monkeypatch):
    fixed = replace(pytorch.TRAINER, program=lambda _: Program(("train.py",)))
    monkeypatch.setattr(pytorch, "TRAINER", fixed)
    made = emission(plan("four nodes with RoCE"), "pytorch", tmp_path).files["launch.sh"]
    (tmp_path / "launch.sh").write_text(made)
    result = bench("bash", tmp_path / "launch.sh", HEAD="a", NNODES="2:8")
    assert result.returncode == 1
    assert "pytorch needs 4 nodes, not a range such as NNODES=2:8" in result.stderr


def test_all_ranks_of_several_nodes_run_on_one_machine(plan, folder_of, bench, arguments):
    folder = folder_of(plan("four nodes with RoCE"), "torchrun")
    given = arguments(bench(folder / "launch.sh", "--device", "cpu", "--shrink", LOCAL="1"))
    assert given[:3] == ["--standalone", "--nproc-per-node", "32"]


def test_too_many_ranks_for_one_machine_are_refused(plan, folder_of, bench):
    result = bench(folder_of(plan("128 nodes with InfiniBand"), "torchrun") / "launch.sh", "--device", "cpu", LOCAL="1")
    assert result.returncode == 1
    assert "LOCAL=1 would start 1024 processes on this machine; it starts at most 64" in result.stderr


@pytest.mark.parametrize("name", ["run", "a b'c\"$(touch pwned4); touch pwned5 #", "-rf", "two\nlines"])
@pytest.mark.parametrize("case", ["two consumer cards", "four nodes with RoCE"])
def test_hostile_names_do_no_harm(plan, hostile, bench, arguments, tmp_path, monkeypatch, name, case):
    monkeypatch.chdir(tmp_path)
    made = emit(hostile(plan(case)), "torchrun", Path(name))
    given = arguments(bench("bash", "-c", f"{made.start} --device cpu"))
    assert given[-5:] == ["-m", "trainer", "plan.json", "--device", "cpu"]
    assert list(tmp_path.rglob("pwned*")) == []


def test_hostile_words_of_a_program_reach_it_as_they_are(plan, bench, arguments, tmp_path, monkeypatch):
    words = ("train me.py", "$(touch pwned1)", "`touch pwned2`", "a\nb", "'\"\\", "--x=*", "")
    value = "$(touch pwned3)\n';\"`"
    wild = Program(words, environment=(Variable("NCCL_X", value, "a reason\ntouch pwned4"),))
    monkeypatch.setattr(pytorch, "TRAINER", replace(pytorch.TRAINER, program=lambda _: wild))
    text = emission(plan("two consumer cards"), "pytorch", tmp_path).files["launch.sh"]
    (tmp_path / "launch.sh").write_text(text)
    (bench.programs / "python3").write_text("#!/bin/sh\necho 2\n")
    (bench.programs / "python3").chmod(0o755)
    result = bench("bash", tmp_path / "launch.sh", "own $(word)")
    assert arguments(result)[5:] == [*words, "own $(word)"]
    assert f"NCCL_X={value.splitlines()[0]}" in result.stdout
    assert list(tmp_path.rglob("pwned*")) == []


def test_accelerate_is_told_ranks_and_the_total_of_processes(plan, bench, arguments, tmp_path, monkeypatch):
    program = Program(("train.py",), starter="accelerate", try_out=("--device", "cpu"))
    monkeypatch.setattr(pytorch, "TRAINER", replace(pytorch.TRAINER, program=lambda _: program))
    made = emission(plan("four nodes with RoCE"), "pytorch", tmp_path)
    (tmp_path / "launch.sh").write_text(made.files["launch.sh"])
    refused = bench("bash", tmp_path / "launch.sh", "--device", "cpu", HEAD="a")
    assert "NODE_RANK is not set" in refused.stderr
    given = arguments(bench("bash", tmp_path / "launch.sh", "--device", "cpu", HEAD="a", NODE_RANK="3"))
    assert given == [
        *("launch", "--config_file", "accelerate.yaml", "--num_machines", "4", "--num_processes", "32"),
        *("--machine_rank", "3", "--main_process_ip", "a", "--main_process_port", "29500"),
        *("train.py", "--device", "cpu"),
    ]
    assert made.start.startswith("HEAD=NAME-OF-THE-FIRST-NODE NODE_RANK=0 ")


@pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed")
def test_torchrun_really_starts_the_ranks_of_one_node_from_anywhere(plan, hostile, folder_of, real):
    folder = folder_of(hostile(plan("two consumer cards")), "torchrun", 'a folder\'s "name" $(touch pwned)')
    assert real(folder, "--device", "cpu", "two words") == [
        "0 2 0 plan.json --device cpu two words",
        "1 2 1 plan.json --device cpu two words",
    ]
    assert list(folder.parent.rglob("pwned*")) == []


@pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed")
def test_torchrun_really_joins_two_nodes_by_their_ranks(plan, folder_of, real, unused_port):
    contents = plan("two nodes")
    nodes = [{"HEAD": "localhost", "PORT": str(unused_port), "NODE_RANK": str(rank)} for rank in (0, 1)]
    lines = real(folder_of(contents, "torchrun"), "--device", "cpu", nodes=nodes)
    assert [line.split()[:2] for line in lines] == [[str(rank), "16"] for rank in range(16)]


@pytest.mark.slow
@pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed")
def test_an_elastic_run_really_begins_with_fewer_nodes_and_again_after_a_failure(plan, folder_of, real, unused_port):
    folder = folder_of(plan("two nodes"), "torchrun")
    once = 'if os.environ["RANK"] + os.environ["TORCHELASTIC_RESTART_COUNT"] == "30": sys.exit(1)\n'
    nodes = [{"HEAD": "localhost", "PORT": str(unused_port), "NODE_RANK": "0", "NNODES": "1:2"}]
    lines = real(folder, "--device", "cpu", nodes=nodes, trainer=FAKE_TRAINER + once)
    assert {line.split()[1] for line in lines} == {"8"}
    assert lines.count("3 8 3 plan.json --elastic --device cpu") == 2
