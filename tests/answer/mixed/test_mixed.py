"""Clusters of unequal nodes: uneven work against even work, every way against brute force, and the limits."""

from dataclasses import replace
from itertools import product

import pytest

from planner.answer.choices import Choices
from planner.answer.evaluate import evaluate
from planner.answer.mixed.answer import mixed
from planner.answer.mixed.parts import arranged, is_mixed, parts_of
from planner.answer.mixed.replicas import dealt_anew, replicas_apart, uneven_replicas
from planner.answer.mixed.stages import as_it_is, layers_dealt_anew, pipeline_of, stages_apart
from planner.answer.mixed.ways import ALONE, BATCHES, LAYERS, ONE_PACE
from planner.answer.question import ask
from planner.answer.recommend import recommend
from planner.answer.simulation import Circumstances, simulated
from planner.catalogue.hardware import cluster
from planner.errors import NoFeasiblePlan, SpecError
from planner.search.enumerate import enumerate_plans
from planner.search.unequal_ranks import best_unequal_split
from planner.spec.cluster import Wan
from planner.spec.plan import Plan, RankOrder, Schedule, Sharding
from planner.topology.group_links import group_links

MODEL = "llama-3.2-1b"


def joined(*names):
    """One cluster of several."""
    first, *others = (cluster(name) for name in names)
    return replace(first, name="mixed", pools=tuple(pool for each in (first, *others) for pool in each.pools))


def slower(share, nodes="1xdgx-h100"):
    """A cluster whose accelerators compute at a share of their speed."""
    machines = cluster(nodes)
    part = machines.node.accelerator
    peak = {name: share * each for name, each in part.peak.items()}
    part = replace(part, name="slow", peak=peak, memory_bandwidth=share * part.memory_bandwidth)
    return replace(machines, pools=(replace(machines.pools[0], node=replace(machines.node, accelerator=part)),))


def asked(machines, model=MODEL, **choices):
    return arranged(ask(model, machines, Choices(**{"seq_len": 2048, "global_batch_size": 192} | choices)))


@pytest.fixture(scope="module")
def generations():
    return asked(joined("1xdgx-h100", "1xdgx-a100"))


@pytest.fixture(scope="module")
def found(generations):
    return mixed(generations)


def time_by_hand(question, parts, plan, units, field):
    """max over replicas of the time of a replica with its units, each part's accelerators under all ranks."""
    links = group_links(plan, question.cluster)
    links = links if links.is_scalar else links[0]
    return max(
        float(part.time(replace(plan, **{field: each}), links).total) for part, each in zip(parts, units, strict=True)
    )


REPLICATED = {
    "plain replicas": Plan(dp_replicate=16, micro_batch_size=2, num_microbatches=6),
    "tensor groups": Plan(tp=4, dp_shard=4, sharding=Sharding.ZERO1, micro_batch_size=4, num_microbatches=12),
    "gathered with every micro-batch": Plan(
        dp_shard=16, sharding=Sharding.ZERO3, micro_batch_size=4, num_microbatches=3
    ),
    "pipelines": Plan(
        pp=2, dp_shard=8, sharding=Sharding.ZERO1, micro_batch_size=2, num_microbatches=12,
        schedule=Schedule.ONE_F_ONE_B, rank_order=RankOrder.TP_CP_PP_DP,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REPLICATED)
def test_uneven_micro_batches_are_never_slower_than_even_ones_and_lose_no_sequence(generations, name):
    plan, parts = REPLICATED[name], parts_of(generations)
    dealt = dealt_anew(generations, parts, plan)
    even = evaluate(generations, plan)
    assert dealt.step_time <= even.step_time * (1 + 1e-9)
    assert dealt.step_time < 0.9 * even.step_time
    sequences = sum(
        count * size * number
        for share in dealt.shares
        for count, units in share.runs
        for size, number in [dealt.batch(units)]
    )
    assert sequences == generations.workload.global_batch_size
    assert [share.replicas for share in dealt.shares] == [int(plan.dp) // 2] * 2
    assert dealt.shares[0].most > dealt.shares[1].most
    assert all(peak <= part.limit for peak, part in zip(dealt.peaks, parts, strict=True))


def test_the_step_is_that_of_the_slowest_replica(generations):
    parts, plan = parts_of(generations), REPLICATED["plain replicas"]
    dealt = dealt_anew(generations, parts, plan)
    field = "micro_batch_size" if dealt.by_size else "num_microbatches"
    most = [share.most for share in dealt.shares]
    assert dealt.step_time == pytest.approx(time_by_hand(generations, parts, dealt.plan, most, field))


def test_no_other_numbers_of_micro_batches_are_faster(generations):
    """One size of micro-batches, all numbers of them that eight fast and eight slow replicas can have."""
    parts, plan = parts_of(generations), REPLICATED["plain replicas"]
    dealt = dealt_anew(generations, parts, plan)
    tried = 0
    for size in (1, 2, 3, 4, 6, 8, 12):
        units, own = 192 // size, replace(plan, micro_batch_size=size)
        for fast in range(1, units // 8):
            slow = max(1, -(-(units - 8 * fast) // 8))  # as few as leave no micro-batch over
            seconds = time_by_hand(generations, parts, own, (fast, slow), "num_microbatches")
            assert dealt.step_time <= seconds * (1 + 1e-9)
            tried += 1
    assert tried > 40


def test_equal_nodes_get_equal_work():
    machines = joined("1xdgx-h100", "1xhgx-h100")
    question = asked(machines)
    dealt = dealt_anew(question, parts_of(question), REPLICATED["plain replicas"])
    assert dealt.even
    even = evaluate(
        question,
        replace(
            dealt.plan,
            **dict(zip(("micro_batch_size", "num_microbatches"), dealt.batch(dealt.shares[0].most), strict=True)),
        ),
    )
    assert dealt.step_time == pytest.approx(even.step_time)


@pytest.mark.parametrize("share", [0.9, 0.5, 0.25])
def test_the_slower_a_node_the_less_it_does(share):
    machines = joined("1xdgx-h100", "1xdgx-h100")
    machines = replace(machines, pools=(machines.pools[0], *slower(share).pools))
    question = asked(machines, global_batch_size=1600)
    plan = Plan(dp_replicate=16, micro_batch_size=1, num_microbatches=100)
    dealt = dealt_anew(question, parts_of(question), plan)
    fast, slow = (share.most for share in dealt.shares)
    assert slow / fast == pytest.approx(share, abs=0.12)


STAGED = Plan(
    pp=4, dp_shard=4, sharding=Sharding.ZERO1, micro_batch_size=2, num_microbatches=24, schedule=Schedule.ONE_F_ONE_B
)


def test_uneven_layers_are_never_slower_than_even_ones(generations):
    parts = parts_of(generations)
    dealt = layers_dealt_anew(generations, parts, STAGED)
    even = as_it_is(generations, parts, STAGED)
    assert dealt.step_time < even.seconds <= evaluate(generations, STAGED).step_time * (1 + 1e-9)
    assert sum(dealt.step.sizes) == generations.model.num_hidden_layers
    fast, slow = dealt.step.sizes[:2], dealt.step.sizes[2:]
    assert min(fast) >= max(slow)


def test_a_pipeline_of_equal_ranks_takes_what_recommend_says():
    question = asked(joined("1xdgx-h100", "1xhgx-h100"))
    step = as_it_is(question, parts_of(question), STAGED)
    assert step.seconds == pytest.approx(evaluate(question, STAGED).step_time)
    assert max(step.peaks) == pytest.approx(evaluate(question, STAGED).peak)


@pytest.mark.parametrize("first", [8, 10, 12])
def test_unequal_stages_take_what_the_simulation_plays(generations, first):
    """Independent code plays every action, with the fast accelerator under the first pipeline rank."""
    plan = replace(STAGED, pp=2, tp=2, first_stage_layers=first, last_stage_layers=16 - first)
    step = as_it_is(generations, parts_of(generations), plan)
    played = simulated(evaluate(generations, plan), Circumstances(parts={0: "h100-sxm"})).simulation
    assert step.seconds == pytest.approx(played.makespan, rel=0.01)


def test_the_split_of_layers_that_is_found_is_the_best_of_all(generations):
    """Four ranks, sixteen layers: all 455 splits by (m - 1) slowest + sum, and the best of those played."""
    pipeline = pipeline_of(generations, parts_of(generations), STAGED)
    layers = generations.model.num_hidden_layers
    splits = [
        (a, b, c, layers - a - b - c) for a, b, c in product(range(1, layers - 2), repeat=3) if a + b + c < layers
    ]
    costs = {sizes: pipeline.work.cost(sizes, 24) for sizes in splits}
    near = [sizes for sizes, cost in costs.items() if cost < 1.1 * min(costs.values())]
    best = min(pipeline.step(sizes).seconds for sizes in near)
    assert pipeline.best().seconds <= 1.01 * best
    assert costs[best_unequal_split(pipeline.work, 24)] == pytest.approx(min(costs.values()))


def test_memory_is_each_accelerators_own():
    """What fits 80 GB does not fit 32: the small part gets fewer sequences or layers, never more than it holds."""
    question = asked(joined("1xdgx-h100", "1xdgx-1-v100"), model="llama-3.1-8b", precision="fp16", global_batch_size=64)
    answer = mixed(question)
    for way in answer.ways:
        for share in way.shares:
            assert share.peak <= share.part.limit
    assert any(way.kind == LAYERS for way in answer.ways)


def test_the_best_way_is_no_slower_than_any_other_and_uneven_ones_than_one_pace(found):
    times = [way.step_time for way in found.ways]
    assert times == sorted(times)
    one = found.best_of(ONE_PACE)
    assert found.best_of(BATCHES).step_time <= one.step_time
    assert found.best_of(LAYERS).step_time <= one.step_time


def test_one_pace_and_parts_alone_are_what_recommend_says(generations, found):
    assert found.even.step_time == pytest.approx(
        recommend(MODEL, generations.cluster, generations.choices, top=1).best.step_time
    )
    for name in ("dgx-h100", "dgx-a100"):
        best = recommend(MODEL, f"1x{name}", generations.choices, top=1).best
        way = next(w for w in found.ways if w.kind == ALONE and w.shares[0].part.pools[0].node.name == name)
        assert way.step_time == pytest.approx(best.step_time)
        assert way.usd_per_million_tokens == pytest.approx(best.usd_per_million_tokens)


def test_loss_weights_make_the_mean_over_replicas_that_over_sequences(found):
    way = found.best_of(BATCHES)
    runs = [run for share in way.shares for run in share.batches]
    replicas = sum(count for count, _, _ in runs)
    total = sum(
        count * number * weight for (count, _, number), weight in zip(runs, way.loss_weights, strict=True)
    )  # every micro-batch's mean loss being 1
    assert total / replicas == pytest.approx(1.0)


def test_three_parts_keep_their_names_in_every_choice_of_them():
    """Two parts have the same accelerator, so that parts go by their nodes, also where one of the two is left out."""
    answer = mixed(asked(joined("1xdgx-h100", "1xaws-p5", "1xdgx-a100")))
    names = {"dgx-h100", "aws-p5", "dgx-a100"}
    assert {share.part.name for way in answer.ways for share in way.shares} == names
    rests = [text.removeprefix("without ").partition(":")[0] for text in answer.verdicts]
    assert sorted(rests) == sorted(
        [
            *names,
            *(f"{a} and {b}" for a, b in [("dgx-h100", "aws-p5"), ("dgx-h100", "dgx-a100"), ("aws-p5", "dgx-a100")]),
        ]
    )


def test_what_running_it_takes_is_said(generations):
    batches, layers = (mixed(asked(generations.cluster, fix=fix)) for fix in ("pp=1", "pp=2,tp=8"))
    assert "multiply each micro-batch's mean loss by" in batches.how
    sizes = [size for share in layers.best.shares for size in share.layers]
    assert f"--pipeline-model-parallel-layout 'Et*{sizes[0]}|t*{sizes[1]},L'" in layers.how
    assert sum(sizes) == generations.model.num_hidden_layers


def test_the_loss_to_the_slowest_is_said(found):
    assert "h100-sxm waits" in found.loss
    assert "for a100-sxm-80gb" in found.loss


def test_a_crawling_node_is_left_out():
    machines = joined("2xdgx-h100")
    machines = replace(machines, pools=(*machines.pools, *slower(0.01).pools))
    answer = mixed(asked(machines))
    assert [share.part.name for share in answer.best.shares] == ["h100-sxm"]
    assert any(text.startswith("without slow: ") for text in answer.verdicts)


def test_two_sites_over_a_thin_line_are_worse_than_one():
    text = joined("1xdgx-h100", "1xdgx-h100")
    sites = tuple(replace(pool, site=name) for pool, name in zip(text.pools, ("here", "there"), strict=True))
    thin = replace(text, pools=sites, wan=Wan(bandwidth=1e7, latency=0.05))
    wide = replace(text, pools=sites, wan=Wan(bandwidth=400e9, latency=5e-6))
    assert mixed(asked(thin)).best.kind == ALONE
    assert mixed(asked(wide)).best.gpus == 16


def test_a_batch_that_the_replicas_do_not_divide_is_dealt(generations):
    question = replace(generations, workload=replace(generations.workload, global_batch_size=97))
    dealt = uneven_replicas(question, parts_of(question))
    assert sum(share.units for share in dealt.shares) * dealt.batch(1)[0 if not dealt.by_size else 1] == 97


def test_replicas_and_stages_lie_within_the_parts_or_are_refused():
    question = asked(joined("1xdgx-h100", "2xperlmutter"))
    parts = parts_of(question)
    across = Plan(tp=8, dp_replicate=2, micro_batch_size=4, num_microbatches=24)
    assert replicas_apart(across.columns(), parts)[0]
    wide = Plan(tp=16, micro_batch_size=4, num_microbatches=48)
    assert not replicas_apart(wide.columns(), parts)[0]
    with pytest.raises(NoFeasiblePlan, match="do not lie within the parts"):
        dealt_anew(question, parts, wide)
    assert not stages_apart(across.columns(), parts)[0]
    with pytest.raises(NoFeasiblePlan, match="do not lie within the parts"):
        layers_dealt_anew(question, parts, across)


def test_every_candidate_of_the_search_that_is_apart_is_dealt_no_worse(generations):
    """A sample of all legal plans, both ways of dealing."""
    parts = parts_of(generations)
    candidates = enumerate_plans(
        generations.model, generations.cluster, generations.workload, stack=generations.stack, fix={"recompute": [0]}
    )
    checked = 0
    for row in range(0, len(candidates), max(1, len(candidates) // 25)):
        plan = candidates.row(row)
        even = evaluate(generations, plan)
        if even.peak > min(part.limit for part in parts):
            continue
        if replicas_apart(plan.columns(), parts)[0]:
            assert dealt_anew(generations, parts, plan).step_time <= even.step_time * (1 + 1e-9)
            checked += 1
        if stages_apart(plan.columns(), parts)[0]:
            assert layers_dealt_anew(generations, parts, plan).step_time <= even.step_time * (1 + 1e-9)
            checked += 1
    assert checked >= 5


def test_what_the_user_fixes_stays(generations):
    sizes = mixed(asked(generations.cluster, fix="micro_batch_size=2,pp=1"))
    assert {size for way in sizes.ways for share in way.shares for _, size, _ in share.batches} == {2}
    numbers = mixed(asked(generations.cluster, fix="num_microbatches=3"))
    assert {number for way in numbers.ways for share in way.shares for _, _, number in share.batches} <= {3}
    ends = mixed(asked(generations.cluster, fix="pp=2,first_stage_layers=10"))
    assert all(way.kind != LAYERS for way in ends.ways)
    both = mixed(asked(generations.cluster, fix="dp=16"))
    assert both.missing == ("h100-sxm", "a100-sxm-80gb")  # eight GPUs are no sixteen replicas


def test_equal_nodes_are_sent_to_recommend():
    assert not is_mixed(cluster("2xdgx-h100"))
    with pytest.raises(SpecError, match="all nodes of 2xdgx-h100 are alike"):
        mixed(ask(MODEL, "2xdgx-h100"))


def test_what_fits_nowhere_has_no_answer():
    with pytest.raises(NoFeasiblePlan):
        mixed(asked(joined("1xdgx-h100", "1xdgx-a100"), model="llama-3.1-405b"))
