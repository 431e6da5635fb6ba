from dataclasses import replace

import numpy as np
import pytest

from planner.catalogue.hardware import cluster
from planner.catalogue.models import model
from planner.catalogue.profiles import profile
from planner.errors import NoFeasiblePlan, SpecError
from planner.estimate.interval import FULL
from planner.estimate.memory import memory_use
from planner.estimate.records import StepTime
from planner.quantities import GIB
from planner.search import rank
from planner.search.enumerate import enumerate_plans
from planner.search.fitting import HOST_MEMORY, fitting, memory_limit
from planner.search.fix import parse_fix
from planner.search.rank import Estimates, search
from planner.search.sorting import KEY, first_rows
from planner.spec.plan import Plan, Recompute, Schedule, Sharding
from planner.spec.profile import Profile
from planner.spec.workload import Workload

PROFILE = Profile("h100-sxm", "torch", "datasheet", gemm={}, attention={}, collectives={})
JOB = Workload(128, 4096)


def step(model, plans, workload, cluster, links, *, profile, stack):
    """A step that knows work, bubble and traffic; many plans tie."""
    flops = 6.0 * model.parameters * workload.tokens_per_step / plans.world_size
    work = flops / 400e12 * (1 + 0.3 * (plans.recompute == Recompute.FULL) + 0.05 * (plans.recompute == 1))
    sharded = plans.sharding >= Sharding.ZERO3
    traffic = model.parameters * 4.0 / (plans.tp * plans.pp) / 50e9 * np.where(sharded, plans.num_microbatches, 1)
    zero = 0.0 * work
    terms = dict.fromkeys(
        ("attention", "elementwise", "head", "recompute", "cp_exposed", "ep_exposed", "pp_exposed", "host", "offload"),
        zero,
    )
    bubble = work * (plans.pp - 1) / (plans.num_microbatches * plans.virtual_stages)
    return StepTime(
        matmul=work, tp_exposed=0.05 * work * np.log2(plans.tp), dp_exposed=np.where(plans.dp > 1, traffic, 0.0),
        bubble=bubble, optimizer=zero + 0.01, fixed=zero, **terms,
    )  # fmt: skip


@pytest.fixture(scope="session")
def ranked(stack):
    def ranking(model, cluster, job=JOB, stack=stack, **options):
        estimates = Estimates(memory=memory_use, links=lambda plans, cluster: None, time=step)
        return search(model, cluster, job, stack=stack, profile=PROFILE, estimates=estimates, **options)

    return ranking


def values(ranking):
    return list(zip(np.asarray(ranking.plans.time.total), np.asarray(ranking.plans.memory.peak), strict=True))


@pytest.mark.parametrize("objective", ["throughput", "usd", "memory"])
@pytest.mark.parametrize(
    "parts",
    [
        ["sharding=ddp|zero1|zero2", "sharding=zero3", "sharding=zero3_keep"],
        ["tp=1", "tp=2..4", "tp=8", "tp=16"],
        ["pp=1", "pp=2..8", "pp=16", "pp=32"],
        ["mbs=1|2", "mbs=4..16", "mbs=32..128"],
        ["order=tp_cp_dp_pp", "order=tp_cp_pp_dp|tp_pp_cp_dp", "order=dp_tp_cp_pp"],
    ],
)
def test_the_best_of_all_parts_is_the_best_of_the_whole(parts, objective, ranked, models, nodes):
    question = (models.llama_8b, nodes(4))
    whole = ranked(*question, objective=objective, top=1)
    bests = [ranked(*question, objective=objective, top=1, fix=parse_fix(part)) for part in parts]
    order = [lambda pair: pair, lambda pair: pair[::-1]][objective == "memory"]
    assert min(order(values(each)[0]) for each in bests) == order(values(whole)[0])
    winners = [each.best.plan.as_dict() for each in bests if order(values(each)[0]) == order(values(whole)[0])]
    assert whole.best.plan.as_dict() in winners


@pytest.mark.parametrize("parts", [["tp=1", "tp=2..8"], ["sharding=fsdp|hsdp", "sharding=ddp|zero1|zero2"]])
def test_parts_agree_with_the_whole_under_the_planners_own_estimates(parts, stack):
    question = model("llama-3.1-8b"), cluster("2xdgx-h100"), Workload(64, 8192)
    asked = {"stack": stack, "profile": profile("h100-sxm", "torch"), "top": 1}
    whole = search(*question, **asked).best
    bests = [search(*question, **asked, fix=parse_fix(part)).best for part in parts]
    fastest = min(bests, key=lambda best: float(best.time.total))
    assert fastest.plan.as_dict() == whole.plan.as_dict()
    assert float(fastest.time.total) == float(whole.time.total)


def test_no_feasible_plan_is_better_than_the_first(ranked, models, nodes, stack):
    question = (models.llama_8b, nodes(2))
    ranking = ranked(*question, top=20)
    plans = enumerate_plans(*question, JOB, stack=stack).rows(slice(None))
    fits = memory_use(models.llama_8b, plans, JOB, stack).peak <= FULL * 79.1 * GIB
    times = step(models.llama_8b, plans[fits], JOB, None, None, profile=None, stack=None).total
    assert ranking.evaluated == len(plans)
    assert ranking.feasible == fits.sum()
    assert [time for time, _ in values(ranking)] == sorted(times)[:20]


def test_equal_plans_are_told_apart_by_memory_and_then_by_simplicity(ranked, models, nodes):
    ranking = ranked(models.llama_8b, nodes(1), top=50)
    pairs = values(ranking)
    assert pairs == sorted(pairs)
    plans = list(ranking.plans.plan)
    ties = [(a, b) for a, b, p, q in zip(plans, plans[1:], pairs, pairs[1:], strict=False) if p == q]
    assert ties
    for a, b in ties:
        assert [getattr(a, name) for name in KEY] < [getattr(b, name) for name in KEY] or a.schedule != b.schedule


def test_the_order_of_plans_is_total():
    assert {*KEY, "schedule"} == {*Plan().as_dict()}


def test_gpipe_does_not_stand_before_1f1b_that_takes_as_long():
    plans = Plan(pp=8, schedule=np.array([Schedule.NONE, Schedule.GPIPE, Schedule.ONE_F_ONE_B])).columns()
    assert first_rows(plans, (np.array([2.0, 1.0, 1.0]), np.ones(3)), 3).tolist() == [2, 1, 0]


def test_the_front_is_what_no_other_plan_beats(ranked, models, nodes):
    ranking = ranked(models.llama_8b, nodes(2))
    time, peak = np.asarray(ranking.front.time.total), np.asarray(ranking.front.memory.peak)
    assert (np.diff(time) > 0).all()
    assert (np.diff(peak) < 0).all()
    assert time[0] == values(ranking)[0][0]
    assert peak[-1] == values(ranked(models.llama_8b, nodes(2), objective="memory"))[0][1]


def test_each_family_has_its_best(ranked, models, nodes):
    question = (models.llama_8b, nodes(2))
    ranking = ranked(*question, family=lambda plans: np.asarray(plans.sharding))
    for code, name in enumerate(["ddp", "zero1", "zero2", "zero3", "zero3_keep"]):
        if code in ranking.families:
            alone = ranked(*question, fix=parse_fix(f"sharding={name}"), top=1)
            assert ranking.families[code].plan.as_dict() == alone.best.plan.as_dict()
    assert len(ranking.families) >= 4


def test_the_answer_does_not_depend_on_how_rows_are_cut_into_chunks(ranked, models, nodes, monkeypatch):
    usual = ranked(models.llama_8b, nodes(1), top=10)
    monkeypatch.setattr(rank, "CHUNK", 77)
    cut = ranked(models.llama_8b, nodes(1), top=10)
    assert values(cut) == values(usual)
    assert [plan.as_dict() for plan in cut.plans.plan] == [plan.as_dict() for plan in usual.plans.plan]


def test_every_candidate_is_counted_once(ranked, models, nodes):
    ranking = ranked(models.llama_70b, nodes(4))
    too_large = sum(count for reason, count in ranking.rejected.items() if reason.startswith("memory"))
    assert ranking.feasible + too_large == ranking.evaluated
    assert ranking.feasible == len(ranked(models.llama_70b, nodes(4), top=10**6).plans)


def test_memory_is_computed_once_for_all_rank_orders(models, nodes, stack):
    question = (models.llama_8b, nodes(4))
    candidates = enumerate_plans(*question, JOB, stack=stack)
    asked = []

    def counted(model, plans, workload, stack):
        asked.append(len(plans))
        return memory_use(model, plans, workload, stack)

    found = fitting(candidates, *question, JOB, stack, estimate=counted)
    assert sum(asked) < 0.7 * len(candidates)
    direct = memory_use(models.llama_8b, candidates.rows(slice(None)), JOB, stack).peak
    assert found.peak.tolist() == direct.tolist()
    assert found.fits.tolist() == (direct <= memory_limit(nodes(4))).tolist()


def test_what_is_offloaded_must_fit_in_the_host(models, nodes, stack, ranked):
    fix = parse_fix("offload=optimizer,sharding=zero1")
    assert ranked(models.llama_8b, nodes(1, host_memory=2048 * GIB), fix=fix).rejected.get(HOST_MEMORY, 0) == 0
    with pytest.raises(NoFeasiblePlan) as caught:
        ranked(models.llama_8b, nodes(1, host_memory=8 * GIB), fix=fix)
    assert caught.value.rejected[HOST_MEMORY] > 0


def test_when_nothing_fits_the_reason_the_gap_and_the_remedies_are_told(ranked, models, nodes):
    with pytest.raises(NoFeasiblePlan) as caught:
        ranked(models.llama_70b, nodes(1), Workload(128, 4096))
    words = str(caught.value)
    assert "\n" not in words
    assert "fits" in words
    assert "GiB per GPU of 75.1 GiB that may be used" in words
    assert "the largest item optimizer states" in words
    assert "--method lora" in words
    assert "--state 16bit" in words
    assert "2 such nodes (16 GPUs)" in words
    assert caught.value.exit_code == 3
    assert any(reason.startswith("memory: mostly") for reason in caught.value.rejected)


def test_remedies_name_what_the_user_fixed(ranked, models, nodes):
    with pytest.raises(NoFeasiblePlan) as caught:
        ranked(models.llama_8b, nodes(1), fix=parse_fix("recompute=none,mbs=4,sharding=fsdp,tp=1,pp=1,cp=1"))
    assert "it would fit with --fix recompute=full, or --fix micro_batch_size=1, or no --fix" in str(caught.value)


def test_remedies_are_what_the_stack_can_do(ranked, models, nodes, stack):
    without = replace(stack, methods=("full",), states=("mixed",), optimizers=("adamw",), offloads=("none", "all"))
    with pytest.raises(NoFeasiblePlan) as caught:
        ranked(models.llama_70b, nodes(1), Workload(128, 4096), stack=without)
    words = str(caught.value)
    assert not any(flag in words for flag in ("--method", "--state", "--optimizer", "--offload optimizer"))
    assert "--offload all" in words


def test_an_unknown_objective_is_refused(ranked, models, nodes):
    with pytest.raises(SpecError, match="unknown objective 'thruput'; did you mean throughput"):
        ranked(models.llama_8b, nodes(1), objective="thruput")


def test_the_smallest_accelerator_decides(models, nodes):
    small = replace(nodes(1).node.accelerator, usable_memory=39.4 * GIB)
    mixed = replace(
        nodes(1), pools=(*nodes(1).pools, replace(nodes(1).pools[0], node=replace(nodes(1).node, accelerator=small)))
    )
    assert memory_limit(mixed) == pytest.approx(0.95 * 39.4 * GIB)
