import re
from dataclasses import fields, replace

import numpy as np
import pytest

from planner import Choices, NoFeasiblePlan, SpecError, recommend
from planner.answer.emission import emission, emit
from planner.answer.evaluate import evaluate
from planner.answer.plan_files import plan_file_of
from planner.answer.question import ask
from planner.catalogue.hardware import cluster
from planner.emit import pytorch
from planner.emit.targets import LAUNCHERS
from planner.search.enumerate import enumerate_plans
from planner.search.rank import search
from planner.spec.plan import Plan
from planner.spec.plan_file import read_plan_file

SMALL = ("llama-3.2-1b", "1xdgx-h100")
CHOICES = Choices(target="pytorch", seq_len=2048, global_batch_size=64)


def kept(question=SMALL, **choices):
    """What recommend keeps of its best plan."""
    return plan_file_of(recommend(*question, Choices(**choices), top=1).best)


def refused(contents, target, folder):
    """The line of a refusal."""
    with pytest.raises(SpecError) as error:
        emission(contents, target, folder)
    text = str(error.value)
    assert "\n" not in text
    return text


def differing(one, other):
    return {each.name for each in fields(Plan) if int(getattr(one, each.name)) != int(getattr(other, each.name))}


@pytest.fixture
def zero1():
    """A plan with three things that plain PyTorch has not, for the choices of CHOICES."""
    fixed = "tp=2,pp=2,cp=1,sharding=zero1,schedule=zb_h1,async_tp=on,recompute=none"
    return kept(seq_len=2048, global_batch_size=64, fix=fixed)


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_every_folder_holds_the_plan_and_the_trainer(contents, launcher, tmp_path):
    made = emit(contents, launcher, tmp_path / "run")
    assert read_plan_file(tmp_path / "run" / "plan.json").plan.as_dict() == contents.plan.as_dict()
    assert {str(path.relative_to(tmp_path / "run")) for path in (tmp_path / "run").rglob("*.*")} == set(made.files)
    assert "trainer/__main__.py" in made.files
    assert made.target == f"{launcher},pytorch"


def test_a_refusal_names_the_reason_and_the_nearest_plan(zero1, tmp_path):
    text = refused(zero1, "slurm", tmp_path)
    assert text.startswith("--target: pytorch cannot express the plan: pytorch has no ")
    assert re.search(
        r"; the nearest that it can: --target pytorch --fix \S+ \(\d changes: .+; [\d.]+ m?s per step\)$", text
    )


def test_the_fix_of_a_refusal_leaves_the_nearest_plan_alone(zero1, tmp_path):
    text = refused(zero1, "torchrun", tmp_path)
    fixed = re.search(r"--fix (\S+) ", text)[1]
    asked = ask(*SMALL, replace(CHOICES, fix=fixed))
    candidates = enumerate_plans(asked.model, asked.cluster, asked.workload, stack=asked.stack, fix=asked.fix)
    assert len(candidates) == 1
    named = re.search(r"changes: (.+);", text)[1]
    assert differing(zero1.plan, candidates.row(0)) == set(re.findall(r"(\w+) \S+ -> ", named))


def test_no_plan_that_fits_is_nearer_and_none_as_near_is_faster(zero1, tmp_path):
    fixed = re.search(r"--fix (\S+) ", refused(zero1, "torchrun", tmp_path))[1]
    asked = ask(*SMALL, CHOICES)
    given = {"stack": asked.stack, "profile": asked.profile}
    inputs = asked.model, asked.cluster, asked.workload
    chosen = search(*inputs, **given, fix=ask(*SMALL, replace(CHOICES, fix=fixed)).fix, top=1).best
    apart = len(differing(zero1.plan, chosen.plan))
    ranked = search(*inputs, **given, top=100_000).plans
    distances = np.array([len(differing(zero1.plan, row.plan)) for row in ranked])
    assert distances.min() == apart
    times = np.asarray(ranked.time.total)[distances == apart]
    assert float(chosen.time.total) == pytest.approx(times.min())


def test_a_job_that_the_trainer_cannot_do_is_refused_without_a_nearest_plan(tmp_path):
    contents = kept(("llama-3.2-1b", "1xrtx-4090"), method="qlora")
    text = refused(contents, "pytorch", tmp_path)
    assert text == "--target: pytorch cannot express the plan: pytorch has no qlora; it has: full, lora"


def test_a_model_that_the_trainer_has_not_is_refused_whatever_the_plan(tmp_path):
    contents = kept(("t5-large", "1xdgx-h100"), stack="pytorch")
    text = refused(contents, "pytorch", tmp_path)
    assert "it has no encoder-decoder models" in text
    assert text.endswith("no plan of this job that fits is one that it can")


def test_accelerators_that_torch_does_not_drive_as_gpus_are_refused(tmp_path):
    contents = kept(("llama-3.2-1b", "1xhls-gaudi2"), stack="pytorch")
    assert "it runs on NVIDIA and AMD GPUs, not on gaudi2" in refused(contents, "slurm", tmp_path)


def test_a_plan_that_is_illegal_for_everybody_is_refused(tmp_path):
    contents = kept(target="pytorch")
    broken = replace(contents, plan=replace(contents.plan, micro_batch_size=3))
    assert "micro-batch 3 x DP" in refused(broken, "pytorch", tmp_path)


def test_nodes_of_different_sizes_are_refused(tmp_path):
    contents = kept(
        ("llama-3.2-1b", "3xdgx-h100"), target="pytorch", fix="tp=1,pp=1,cp=1,sharding=ddp", global_batch_size=24
    )
    pools = (*cluster("2xdgx-h100").pools, *cluster("2xperlmutter").pools)
    mixed = replace(contents, cluster=replace(contents.cluster, pools=pools))
    assert "torchrun cannot start the plan: its nodes are of 4 and of 8 GPUs" in refused(mixed, "torchrun", tmp_path)


def test_a_plan_for_no_stack_in_particular_is_predicted_anew(tmp_path):
    contents = kept(fix="sharding=zero3,tp=1,pp=1,cp=1,recompute=selective")
    assert contents.stack.name == "generic"
    emit(contents, "pytorch", tmp_path / "run")
    written = read_plan_file(tmp_path / "run" / "plan.json")
    asked = ask(*SMALL, Choices(target="pytorch"))
    assert written.stack == asked.stack
    assert written.prediction["step_time_s"] == pytest.approx(evaluate(asked, contents.plan).step_time)
    assert written.profile.name == plan_file_of(evaluate(asked, contents.plan)).profile.name


def test_a_stack_of_ones_own_choice_stays_and_is_said(tmp_path):
    contents = kept(stack="fsdp2")
    made = emission(contents, "pytorch", tmp_path)
    assert "the prediction is for the stack fsdp2, not for that of pytorch" in made.notes
    emit(contents, "pytorch", tmp_path / "run")
    written = read_plan_file(tmp_path / "run" / "plan.json")
    assert written.stack.name == "fsdp2"
    assert written.prediction["step_time_s"] == contents.prediction["step_time_s"]


def test_the_same_plan_gives_the_same_files(contents, tmp_path):
    first, second = (emission(contents, "kubernetes", tmp_path).files for _ in range(2))
    assert first == second


def test_recommend_for_a_target_shows_only_what_its_trainer_accepts(monkeypatch, tmp_path):
    def no_pipelines(contents):
        return iter(["it has no pipelines today"] if contents.plan.pp > 1 else [])

    plain = recommend("llama-3.1-8b", "2xdgx-h100", Choices(target="pytorch"))
    assert any(each.plan.pp > 1 for each in [*plain.plans, *plain.front, *plain.families.values()])
    monkeypatch.setattr(pytorch, "TRAINER", replace(pytorch.TRAINER, refusals=no_pipelines))
    found = recommend("llama-3.1-8b", "2xdgx-h100", Choices(target="slurm,pytorch"))
    shown = [*found.plans, *found.front, *found.families.values()]
    assert len(found.plans) == 5
    assert {int(each.plan.pp) for each in shown} == {1}
    assert emission(plan_file_of(found.best), "slurm", tmp_path).files["job.sbatch"]


def test_where_the_trainer_accepts_nothing_the_reason_is_the_answer(monkeypatch):
    never = replace(pytorch.TRAINER, refusals=lambda _: iter(["it is on holiday"]))
    monkeypatch.setattr(pytorch, "TRAINER", never)
    with pytest.raises(NoFeasiblePlan, match="pytorch can express none of the plans that fit: it is on holiday"):
        recommend(*SMALL, Choices(target="pytorch"))
