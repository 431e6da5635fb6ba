import pytest

from planner.catalogue.stacks import stack, stack_names
from planner.spec.stack import LIMITS, Stack

EVERYTHING = Stack("everything")
NAMED = [name for name in LIMITS if isinstance(getattr(EVERYTHING, name), tuple)]


@pytest.mark.parametrize("name", stack_names())
def test_limits_of_a_stack_are_words_that_plans_and_jobs_are_written_with(name):
    found = stack(name)
    for limit in NAMED:
        assert set(getattr(found, limit)) <= set(getattr(EVERYTHING, limit)), limit
    assert "usual" in found.gradient_syncs
    assert "usual" in found.pipeline_syncs


def test_a_stack_starts_from_the_limits_of_another_or_from_none():
    assert stack("nemo").schedules == stack("megatron-core").schedules != EVERYTHING.schedules
    assert stack("generic").schedules == stack("fsdp2").schedules == EVERYTHING.schedules
    assert stack("mlperf-nemo").schedules == stack("nemo").schedules
    assert stack("yafsdp").shardings == stack("fsdp1").shardings


def test_our_trainer_pipelines_only_what_torch_pipelines():
    trainer = stack("torchrun")
    assert trainer.pipeline_shardings == ("none", "zero3_keep")
    assert "zb_h1" not in trainer.schedules
    assert "every" not in trainer.pipeline_syncs
