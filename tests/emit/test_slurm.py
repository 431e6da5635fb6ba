import re

import pytest

SCONTROL = "#!/usr/bin/env bash\n[[ \"$1 $2\" == 'show hostnames' ]] && printf '%s\\n' node07 node08 node11 node12\n"
SRUN = """#!/usr/bin/env bash
# runs what it is given once for each node, as srun does, and says with which options
options=()
while [[ $1 == --* ]]; do options+=("$1"); shift; done
echo "srun ${options[*]}"
for (( node = 0; node < SLURM_NNODES; node++ )); do SLURM_NODEID=$node "$@" || exit; done
"""


@pytest.fixture
def sbatch(bench):
    """Runs a job's script as Slurm does, on so many nodes."""
    for name, text in (("scontrol", SCONTROL), ("srun", SRUN)):
        (bench.programs / name).write_text(text)
        (bench.programs / name).chmod(0o755)

    def run(folder, *arguments, nodes=4, script="job.sbatch", **variables):
        slurm = {
            "SLURM_JOB_ID": "1234567",
            "SLURM_NNODES": str(nodes),
            "SLURM_JOB_NODELIST": "node[07-08,11-12]",
            "SLURM_CPUS_ON_NODE": "96",
        }
        return bench("bash", folder / script, *arguments, cwd=folder, **(slurm | variables))

    return run


def test_the_script_is_right_for_bash(text_of, contents, shell_problems):
    assert shell_problems(text_of(contents, "slurm", "job.sbatch")) == ""


def test_slurm_is_asked_for_the_nodes_and_gpus_of_the_plan(text_of, contents):
    text = text_of(contents, "slurm", "job.sbatch")
    asked = dict(re.findall(r"^#SBATCH --([\w-]+)(?:=(.+))?$", text, re.M))
    assert asked["nodes"] == str(contents.cluster.num_nodes)
    assert asked["ntasks-per-node"] == "1"
    assert asked["gpus-per-node"] == str(contents.cluster.node.gpus_per_node)
    assert "exclusive" in asked
    assert not asked.keys() & {"partition", "account", "time"}


def test_every_node_is_started_with_its_own_rank_and_the_first_as_head(plan, folder_of, sbatch):
    result = sbatch(folder_of(plan("four nodes with RoCE"), "slurm"), "--device", "cpu", "two words")
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("srun --ntasks-per-node=1 --cpus-per-task=96 --kill-on-bad-exit=1\n")
    calls = [call.split("\0\n") for call in result.stdout.split("begin torchrun\n")[1:]]
    assert len(calls) == 4
    for rank, call in enumerate(calls):
        assert call[:4] == ["--nnodes", "4", "--nproc-per-node", "8"]
        assert call[call.index("--rdzv-endpoint") + 1] == f"node07:{10000 + 1234567 % 20000}"
        assert call[call.index("--rdzv-conf") + 1] == f"read_timeout=600,is_host={int(rank == 0)}"
        assert call[-7:-1] == ["-m", "trainer", "plan.json", "--device", "cpu", "two words"]


def test_one_node_needs_no_meeting(plan, folder_of, sbatch):
    result = sbatch(folder_of(plan("eight A100 on PCIe"), "slurm"), "--device", "cpu", nodes=1)
    assert result.returncode == 0, result.stderr
    assert "--standalone\0\n--nproc-per-node\0\n8\0\n" in result.stdout
    assert "rdzv" not in result.stdout


def test_another_number_of_nodes_than_planned_is_refused(plan, folder_of, sbatch):
    result = sbatch(folder_of(plan("four nodes with RoCE"), "slurm"), nodes=3)
    assert result.returncode == 1
    assert "the plan is for 32 processes (4 x 8), not for 3 nodes of 8" in result.stderr
    assert "torchrun" not in result.stdout


def test_a_job_submitted_from_elsewhere_is_refused(plan, folder_of, sbatch, tmp_path):
    folder = folder_of(plan("four nodes with RoCE"), "slurm")
    result = sbatch(tmp_path, script=f"{folder.name}/job.sbatch")
    assert result.returncode == 1
    assert "has no plan.json: submit the job from the folder that holds it" in result.stderr


def test_the_first_node_that_fails_ends_the_job(plan, folder_of, sbatch, bench):
    (bench.programs / "torchrun").write_text("#!/bin/sh\necho begin torchrun; exit 7\n")
    result = sbatch(folder_of(plan("four nodes with RoCE"), "slurm"), "--device", "cpu")
    assert result.returncode == 7
    assert result.stdout.count("begin torchrun") == 1


def test_hostile_names_do_no_harm(plan, hostile, folder_of, sbatch, tmp_path):
    folder = folder_of(hostile(plan("four nodes with RoCE")), "slurm", "a b'c\"$(touch pwned4)")
    result = sbatch(folder, "--device", "cpu", "$(touch pwned5)")
    assert result.returncode == 0, result.stderr
    assert list(tmp_path.rglob("pwned*")) == []
    text = (folder / "job.sbatch").read_text()
    assert re.findall(r"^#SBATCH --nodes.*$", text, re.M) == ["#SBATCH --nodes=4"]
    assert re.search(r"^#SBATCH --job-name=[a-z][a-z0-9-]+$", text, re.M)


def test_start_submits_it_from_its_folder(folder_of, plan, tmp_path):
    from planner.answer.emission import emission

    made = emission(plan("four nodes with RoCE"), "slurm", tmp_path / "a b")
    assert made.start == f"cd '{tmp_path / 'a b'}' && sbatch job.sbatch"
