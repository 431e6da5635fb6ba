from dataclasses import replace

import pytest

from planner.answer.choices import Choices
from planner.answer.nearest import Software, differences, fix_text
from planner.answer.question import ask
from planner.search.enumerate import enumerate_plans
from planner.search.fix import parse_fix
from planner.spec.plan import Offload, Plan, Sharding

ASKED = ask("llama-3.2-1b", "1xdgx-h100", Choices(stack="generic", global_batch_size=64))
JOB = Software(ASKED.model, ASKED.cluster, ASKED.workload, ASKED.stack, ASKED.profile)
PLAN = Plan(dp_shard=8, num_microbatches=8, sharding=Sharding.ZERO3, compiled=1)


@pytest.mark.parametrize(
    "plan",
    [
        PLAN,
        replace(PLAN, offload=Offload.OPTIMIZER),
        replace(PLAN, offload=Offload.ALL),
        replace(PLAN, compiled=0),
        replace(PLAN, dp_shard=4, tp=2, sequence_parallel=1, async_tp=1, num_microbatches=16),
    ],
)
def test_a_fix_leaves_that_very_plan(plan):
    candidates = enumerate_plans(
        JOB.model, JOB.cluster, JOB.workload, stack=JOB.stack, fix=parse_fix(fix_text(plan, JOB))
    )
    assert len(candidates) == 1
    assert differences(plan, candidates.row(0)) == []


def test_a_plan_that_the_search_passes_over_has_no_fix():
    assert fix_text(replace(PLAN, num_microbatches=7), JOB) == ""
