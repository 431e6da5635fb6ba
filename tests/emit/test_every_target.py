"""Every case for every target: what is written parses, and what is refused says why."""

import subprocess
from functools import cache

import pytest
import yaml

from planner import Choices, NoFeasiblePlan, recommend
from planner.answer.emission import emission
from planner.answer.plan_files import plan_file_of
from planner.emit.targets import LAUNCHERS, TRAINER_STACKS

CASES = {
    "two consumer cards": ("llama-3.2-1b", "2xrtx-4090", {}),
    "eight A100 on PCIe": ("llama-3.1-8b", "1xpcie-8x-a100-80gb", {}),
    "four nodes with RoCE": ("llama-3.1-70b", "4xhgx-h100", {"network": "roce-400"}),
    "128 nodes with InfiniBand": ("llama-3.1-405b", "128xdgx-h100", {}),
    "mixture of experts": ("mixtral-8x7b", "4xdgx-h100", {"fix": "ep=8"}),
}
CANNOT = {
    ("torchtitan", "mixture of experts"): "it has no mixtral model",
    ("accelerate", "mixture of experts"): "hf-fsdp has no expert parallelism",
    ("deepspeed", "mixture of experts"): "hf-deepspeed has no expert parallelism",
}


@cache
def best(case, trainer):
    """The best plan that a trainer can express, or why there is none."""
    model, cluster, choices = CASES[case]
    try:
        return plan_file_of(recommend(model, cluster, Choices(target=trainer, **choices), top=1).best)
    except (NoFeasiblePlan, ValueError) as error:
        return str(error)


@pytest.mark.parametrize("trainer", TRAINER_STACKS)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_every_case_is_written_for_every_target_or_refused_in_words(case, trainer, launcher, tmp_path):
    contents = best(case, trainer)
    if (trainer, case) in CANNOT:
        assert CANNOT[trainer, case] in contents
        return
    made = emission(contents, f"{trainer},{launcher}", tmp_path / "run")
    assert "plan.json" in made.files
    (script,) = [name for name in made.files if name in ("launch.sh", "job.sbatch", "trainjob.yaml", "task.yaml")]
    assert script in made.start or "sky launch" in made.start
    for text in scripts(made.files[script]):
        assert subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False).stderr == ""
        assert f"== {contents.plan.world_size}" in text or f"!= {contents.plan.world_size}" in text


def scripts(text):
    """The bash in a launch file."""
    if text.startswith("#!"):
        return [text]
    documents = list(yaml.safe_load_all(text))
    return [each["run"] if "run" in each else each["data"]["run.sh"] for each in documents if "spec" not in each]
