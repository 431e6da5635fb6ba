import numpy as np
import pytest

from planner.errors import SpecError
from planner.search.fix import HYBRID, allowed, check_fix, parse_fix, sharding_kind
from planner.spec.plan import ContextKind, Plan, Recompute, Schedule, Sharding
from planner.spec.stack import Stack
from planner.spec.workload import Workload


def test_values_ranges_and_alternatives_are_read():
    fix = parse_fix("tp=8, pp=1..4 ,cp=1|4,dp=8..,mbs=..2,recompute=none|full")
    assert fix == {
        "tp": (8,),
        "pp": (range(1, 5),),
        "cp": (1, 4),
        "dp": (range(8, 2**31),),
        "micro_batch_size": (range(1, 3),),
        "recompute": (Recompute.NONE, Recompute.FULL),
    }
    assert parse_fix("") == {}


@pytest.mark.parametrize(
    ("text", "name", "values"),
    [
        ("schedule=1F1B", "schedule", (Schedule.ONE_F_ONE_B,)),
        ("schedule=zb-h1|gpipe", "schedule", (Schedule.ZB_H1, Schedule.GPIPE)),
        ("cp_kind=a2a", "context_kind", (ContextKind.ULYSSES,)),
        ("context_kind=allgather", "context_kind", (ContextKind.ALL_GATHER,)),
        ("sp=on", "sequence_parallel", (1,)),
        ("compile=off", "compiled", (0,)),
        ("sharding=ZeRO-1", "sharding_kind", (Sharding.ZERO1, Sharding.ZERO1 + HYBRID)),
        ("zero=2", "sharding_kind", (Sharding.ZERO2,)),
        ("sharding=ddp|hsdp", "sharding_kind", (0, Sharding.ZERO3 + HYBRID, Sharding.ZERO3_KEEP + HYBRID)),
        ("order=tp-cp-pp-dp", "rank_order", (1,)),
    ],
)
def test_common_spellings_mean_the_same(text, name, values):
    assert parse_fix(text) == {name: values}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tq=8", "unknown field 'tq'; did you mean tp"),
        ("sharding=zero4", "unknown sharding 'zero4'; possible: none, ddp"),
        ("schedule=dualpipe", "unknown schedule 'dualpipe'; possible: none, gpipe, one_f_one_b, interleaved, zb_h1"),
        ("tp=eight", "tp=eight is not a whole number or a range such as 1..4"),
        ("tp=2.5", "tp=2.5 is not a whole number"),
        ("tp=-1", "tp=-1 is not a whole number"),
        ("tp=4..2", "tp=4..2 is empty"),
        ("tp", "'tp' has no value; write tp="),
        ("tp=", "'tp=' has no value"),
        ("tp=2,tp=4", "tp is given twice"),
        ("sp=maybe", "unknown sequence_parallel 'maybe'; possible: 1, true, on"),
    ],
)
def test_what_cannot_be_read_says_what_can(text, words):
    with pytest.raises(SpecError) as caught:
        parse_fix(text)
    assert words in str(caught.value)
    assert str(caught.value).startswith("--fix: ")
    assert caught.value.exit_code == 2


def test_a_mask_takes_numbers_and_ranges_together():
    column = np.array([1, 2, 3, 8, 64])
    assert allowed({"tp": (2, range(8, 100))}, "tp", column).tolist() == [False, True, False, True, True]
    assert allowed({"tp": 8}, "tp", column).tolist() == [False, False, False, True, False]
    assert allowed({}, "tp", column).all()


def test_fsdp_with_replicas_is_hybrid_and_ddp_is_not():
    plans = Plan(
        dp_shard=np.array([1, 8, 4]), dp_replicate=np.array([8, 1, 2]), sharding=np.array([0, Sharding.ZERO3, 3])
    )
    assert sharding_kind(plans).tolist() == [0, Sharding.ZERO3, Sharding.ZERO3 + HYBRID]


@pytest.mark.parametrize(
    ("fix", "words"),
    [
        (
            "tp=3",
            "TP 3 does not divide 32 attention heads; possible: 1, 2, 4, 8, 16, 32 (with the other rules: 1, 2, 4, 8)",
        ),
        ("tp=0", "tp 0 is out of range; possible: 1, 2, 4, 8"),
        ("tp=16..", "TP 16 does not divide 8 GPUs"),
        ("dp=16", "DP 16 does not divide 8 GPUs; possible: 1, 2, 4, 8"),
        ("cp=5|7", "CP 5 does not divide 8 GPUs; possible: 1, 2, 4, 8"),
        ("ep=2", "EP 2: a dense model has no experts; possible: 1"),
        ("mbs=3", "micro-batch 3 x DP 1 does not divide the global batch of 1024 sequences; possible: 1, 2, 4"),
        ("sharding=zero2", "only-zero1 has no sharding zero2; possible: none, zero1"),
        ("schedule=zb-h1", "only-zero1 has no schedule zb_h1; possible: none, one_f_one_b"),
    ],
)
def test_a_fixed_value_that_no_plan_can_have_is_refused_with_those_it_can(fix, words, models, problem):
    stack = Stack("only-zero1", shardings=("none", "zero1"), schedules=("none", "one_f_one_b"))
    with pytest.raises(SpecError) as caught:
        check_fix(parse_fix(fix), problem(models.llama_8b, workload=Workload(1024, 4096), stack=stack))
    assert words in str(caught.value)


def test_some_illegal_values_among_legal_ones_are_passed_over(models, problem):
    check_fix(parse_fix("tp=3|4,pp=1..8"), problem(models.llama_8b))


def test_a_fix_given_by_program_may_name_only_known_fields(models, problem):
    with pytest.raises(SpecError, match="unknown field 'tensor'"):
        check_fix({"tensor": (8,)}, problem(models.llama_8b))
