import pytest

from planner.catalogue.stacks import stack
from planner.emit.targets import LAUNCHERS, TRAINER_STACKS, launcher, target_name, trainer
from planner.errors import SpecError


@pytest.mark.parametrize("text", ["slurm,megatron", "megatron,slurm", " Megatron , SLURM "])
def test_trainer_and_launcher_are_named_in_any_order(text):
    assert str(target_name(text)) == "slurm,megatron"


def test_a_trainer_alone_gets_torchrun_and_a_launcher_alone_our_own_trainer():
    assert str(target_name("deepspeed")) == "torchrun,deepspeed"
    assert str(target_name("kubernetes")) == "kubernetes,pytorch"
    assert str(target_name("torchrun")) == "torchrun,pytorch"


@pytest.mark.parametrize("alias", ["trainer", "torch", "pytorch"])
def test_our_own_trainer_has_several_names(alias):
    assert target_name(alias).trainer == "pytorch"


@pytest.mark.parametrize("text", ["slurm,kubernetes", "megatron,deepspeed", "slurm,megatron,torchrun", "torch,trainer"])
def test_two_of_a_kind_do_not_go_together(text):
    with pytest.raises(SpecError, match=r"--target: .* do not go together: name one trainer, one launcher"):
        target_name(text)


@pytest.mark.parametrize(("text", "near"), [("slrum", "slurm"), ("megatron-core", "megatron"), ("", "known: ")])
def test_an_unknown_target_is_named_with_the_nearest(text, near):
    with pytest.raises(SpecError, match=rf"--target: unknown target .*{near}"):
        target_name(text)


@pytest.mark.parametrize("name", TRAINER_STACKS)
def test_every_trainer_is_what_the_table_says(name):
    found = trainer(name)
    assert (found.name, found.stack) == (name, TRAINER_STACKS[name])
    assert stack(found.stack).name == found.stack
    assert found.written_for


@pytest.mark.parametrize("name", LAUNCHERS)
def test_every_launcher_is_what_the_table_says(name):
    assert launcher(name).name == name
    assert launcher(name).written_for
