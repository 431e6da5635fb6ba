"""Plans of five very different cases, their launch files, and programs that stand in for those which start them."""

import os
import shutil
import socket
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from planner.answer.choices import Choices
from planner.answer.emission import emission, emit
from planner.answer.plan_files import plan_file_of
from planner.answer.recommend import recommend
from planner.catalogue.hardware import cluster
from planner.catalogue.models import model as catalogue_model
from planner.catalogue.stacks import stack
from planner.spec.plan_file import PlanFile, ProfileReference
from planner.spec.workload import Workload

CASES = {
    "two consumer cards": ("llama-3.2-1b", "2xrtx-4090", Choices(target="pytorch")),
    "eight A100 on PCIe": ("llama-3.1-8b", "1xpcie-8x-a100-80gb", Choices(target="pytorch")),
    "four nodes with RoCE": ("llama-3.1-70b", "4xhgx-h100", Choices(target="pytorch", network="roce-400")),
    "128 nodes with InfiniBand": ("llama-3.1-405b", "128xdgx-h100", Choices(target="pytorch")),
    "mixture of experts": ("mixtral-8x7b", "4xdgx-h100", Choices(target="pytorch", fix="ep=8")),
}
OTHERS = {"two nodes": ("llama-3.2-1b", "2xdgx-h100", Choices(target="pytorch"))}
HOSTILE = (
    "x; touch pwned1 $(touch pwned2) `touch pwned3`\n#SBATCH --nodes=99\n'\"\\ \x1b[2J\u2028: {a: *b} # \U0001f600"
)
STAND_IN = """#!/usr/bin/env bash
# says how it was called, one argument a line, and what of the environment matters
echo "begin $(basename "$0")"
printf '%s\\0\\n' "$@"
env | grep -E '^(NCCL|OMP|PYTORCH)_' || true
"""


@cache
def plan_of(case):
    model, cluster, choices = (CASES | OTHERS)[case]
    return plan_file_of(recommend(model, cluster, choices, top=1).best)


@pytest.fixture(params=CASES)
def contents(request):
    return plan_of(request.param)


@pytest.fixture
def plan():
    """The contents of the plan.json of a case."""
    return plan_of


@pytest.fixture
def contents_of():
    """The contents of a plan.json, without a prediction, for any model (or its name), plan, number of GPUs and job."""

    def made(model, plan, **job):
        ranks = int(plan.world_size)
        return PlanFile(
            plan=plan,
            model=catalogue_model(model) if isinstance(model, str) else model,
            cluster=cluster(f"{ranks}xh100" if ranks <= 8 else f"{ranks // 8}xdgx-h100"),
            workload=Workload(**{"global_batch_size": int(plan.global_batch_size), "seq_len": 4096} | job),
            stack=stack("generic"),
            profile=ProfileReference("h100-sxm/generic", "0", "datasheet"),
            planner_version="0",
        )

    return made


@pytest.fixture
def hostile():
    """The same plan under names that a shell, Slurm or YAML would choke on."""

    def renamed(contents):
        return replace(
            contents,
            model=replace(contents.model, name=HOSTILE),
            cluster=replace(contents.cluster, name=HOSTILE),
            command=f"planner recommend {HOSTILE}",
        )

    return renamed


@pytest.fixture
def text_of(tmp_path):
    """The text of one emitted file."""
    return lambda contents, target, name: emission(contents, target, tmp_path / "run").files[name]


@pytest.fixture
def folder_of(tmp_path):
    """The folder with the files of a target."""

    def written(contents, target, name="run"):
        return emit(contents, target, tmp_path / name).folder

    return written


@pytest.fixture
def unused_port():
    """A port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return probe.getsockname()[1]


@pytest.fixture
def bench(tmp_path):
    """A PATH whose first folder holds stand-ins; `bench(script, *arguments, **variables)` runs bash there."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("torchrun", "accelerate", "pip"):
        (programs / name).write_text(STAND_IN)
        (programs / name).chmod(0o755)

    def run(*command, cwd=tmp_path, **variables):
        environment = {"PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(tmp_path), "HOSTNAME": "here"}
        line = [str(each) for each in command]
        return subprocess.run(
            line, cwd=cwd, env=environment | variables, capture_output=True, text=True, check=False, timeout=120
        )

    run.programs = programs
    return run


@pytest.fixture
def arguments():
    """The arguments that a stand-in was called with, whatever is in them."""

    def given(result):
        assert result.returncode == 0, result.stderr
        return result.stdout.partition("begin ")[2].partition("\n")[2].split("\0\n")[:-1]

    return given


@pytest.fixture
def shell_problems(tmp_path):
    """What bash and, where it is installed, shellcheck find wrong with a script."""

    def found(text):
        path = tmp_path / "script.sh"
        path.write_text(text)
        lines = [["bash", "-n", str(path)]]
        check = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
        lines += [[check, "--shell=bash", str(path)]] if check else []
        return "".join(
            subprocess.run(line, capture_output=True, text=True, check=False).stdout for line in lines[1:]
        ) + (subprocess.run(lines[0], capture_output=True, text=True, check=False).stderr)

    return found
