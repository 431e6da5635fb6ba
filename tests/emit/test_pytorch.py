import ast
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from planner import Choices
from planner.answer.emission import emission
from planner.answer.question import Question, ask
from planner.answer.software import refusals
from planner.emit import pytorch
from planner.search.enumerate import enumerate_plans
from planner.spec.plan_file import PlanFile, ProfileReference, plan_file_text

TRAINER = Path(pytorch.__file__).with_name("trainer")
READ = "import sys; sys.path.insert(0, {folder!r}); from trainer.settings import read_settings"
QUESTIONS = [
    ("llama-3.1-8b", "2xdgx-h100", {}),
    ("mixtral-8x7b", "4xdgx-h100", {}),
    ("deepseek-v2-lite", "2xdgx-h100", {}),
    ("llama-3.2-1b", "1xdgx-h100", {"method": "lora"}),
    ("mixtral-8x7b", "4xdgx-h100", {"method": "lora"}),
    ("gpt2", "2xrtx-4090", {"precision": "fp16"}),
    ("llama-3.2-1b", "1xdgx-h100", {"offload": "all"}),
]


def file_of(asked: Question, plan) -> PlanFile:
    inputs = asked.model, asked.cluster, asked.workload, asked.stack
    return PlanFile(plan, *inputs, ProfileReference.of(asked.profile))


def test_the_trainer_is_copied_whole_and_as_it_is(plan, tmp_path):
    made = emission(plan("two consumer cards"), "pytorch", tmp_path)
    copied = {name.removeprefix("trainer/"): text for name, text in made.files.items() if name.startswith("trainer/")}
    assert copied == {path.name: path.read_text(encoding="utf-8") for path in TRAINER.glob("*.py")}
    assert {"__init__.py", "__main__.py", "train.py"} <= copied.keys()
    for text in copied.values():
        ast.parse(text)


@pytest.mark.parametrize(("model", "cluster", "choices"), QUESTIONS)
def test_what_is_searched_for_the_trainer_is_what_the_trainer_takes(model, cluster, choices, tmp_path):
    asked = ask(model, cluster, Choices(target="pytorch", **choices))
    candidates = enumerate_plans(asked.model, asked.cluster, asked.workload, stack=asked.stack, fix=asked.fix)
    chosen = np.random.default_rng(0).choice(len(candidates), size=min(40, len(candidates)), replace=False)
    for row in chosen.tolist():
        contents = file_of(asked, candidates.row(row))
        assert list(refusals(contents, "pytorch")) == []
        (tmp_path / f"{row}.json").write_text(plan_file_text(contents))
    code = f"{READ.format(folder=str(TRAINER.parent))}\nfrom pathlib import Path\n"
    code += "for path in sys.argv[1:]: read_settings(Path(path))"
    line = [sys.executable, "-c", code, *map(str, tmp_path.glob("*.json"))]
    assert subprocess.run(line, capture_output=True, text=True, check=False).stderr == ""


def test_the_trainer_reads_its_plan_from_the_folder(plan, folder_of):
    contents = replace(plan("mixture of experts"), prediction={})
    folder = folder_of(contents, "pytorch")
    code = f"{READ.format(folder=str(folder))}\nfrom pathlib import Path\n"
    code += "settings = read_settings(Path(sys.argv[1])); print(settings.plan.world_size, settings.model.name)"
    line = [sys.executable, "-c", code, str(folder / "plan.json")]
    assert subprocess.run(line, capture_output=True, text=True, check=True).stdout == "32 mixtral-8x7b\n"
    assert json.loads((folder / "plan.json").read_text())["plan"]["ep"] == 8
