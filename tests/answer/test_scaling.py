"""How far a job scales: every point is what `recommend` says, and the crossover is what trying every batch says."""

import random
from dataclasses import fields

import pytest

import planner
from planner.answer.crossover import crossover
from planner.answer.scaling import PAYS, scaling


def recommended(model, cluster, **options):
    try:
        return planner.recommend(model, cluster, planner.Choices(**options), top=1).best
    except planner.NoFeasiblePlan:
        return None


@pytest.mark.parametrize("seed", range(3))
def test_every_point_is_what_recommend_says_of_that_cluster(seed):
    draw = random.Random(seed)
    model = draw.choice(["llama-3.2-1b", "llama-3.1-8b", "gpt2", "mixtral-8x7b"])
    machine = draw.choice(["dgx-h100", "dgx-a100-40gb", "pcie-8x-rtx-4090", "gb200-nvl72"])
    networks = draw.sample(["tcp-10", "roce-100", "ib-ndr400", "tcp-100"], 2)
    options = {"method": draw.choice([None, "lora"]), "global_batch_size": draw.choice([None, 96, 512])}
    weak = draw.random() < 0.5
    choices = planner.Choices(network=",".join(networks), **options)
    found = scaling(model, machine, choices, sizes="8..64", weak=weak, max_global_batch_size="1024")
    size = planner.node(machine).gpus_per_node
    for each in found.networks:
        for point in each.points:
            asked = options | {"network": each.network, "global_batch_size": point.global_batch_size}
            best = recommended(model, f"{point.gpus // size}x{machine}", **asked)
            assert (best is None) == (point.ranked is None)
            if best:
                assert point.ranked.plan.as_dict() == best.plan.as_dict()
                assert point.ranked.step_time == best.step_time
                assert point.efficiency == pytest.approx(
                    float(best.speed.tokens_per_s_per_gpu / found.reference.speed.tokens_per_s_per_gpu)
                )


def test_strong_scaling_keeps_the_batch_and_weak_scaling_lets_it_grow_to_its_limit():
    choices = planner.Choices(global_batch_size=64)
    strong = scaling("llama-3.2-1b", "dgx-h100", choices, sizes="8..64")
    assert [point.global_batch_size for point in strong.networks[0].points] == [64] * 4
    assert "strong scaling at 64 sequences = 262,144 tokens a step" in strong.sentence
    weak = scaling("llama-3.2-1b", "dgx-h100", choices, sizes="8..64", weak=True, max_global_batch_size="200")
    assert [point.global_batch_size for point in weak.networks[0].points] == [64, 128, 200, 200]
    assert "up to 200 sequences (given)" in weak.sentence
    assumed = scaling("llama-3.2-1b", "dgx-h100", sizes="8..16", weak=True)
    assert "(assumed: --max-global-batch-size changes it)" in assumed.sentence


def test_efficiency_is_against_one_node_or_the_fewest_nodes_that_fit():
    one = scaling("llama-3.2-1b", "dgx-h100", sizes="16..32")
    assert one.reference.question.cluster.world_size == 8
    assert [point.gpus for point in one.networks[0].points] == [16, 32]
    two = scaling(
        "llama-3.1-70b",
        "dgx-h100",
        planner.Choices(network="tcp-10,ib-ndr400"),
        sizes="8..32",
        max_global_batch_size="128",
    )
    assert two.reference.question.cluster.world_size == 16
    assert two.reference.question.cluster.node.fabric.name == "ib-ndr400"
    assert two.networks[0].points[0].ranked is None
    assert two.networks[1].points[1].efficiency == 1


def test_waiting_is_the_exposed_share_of_the_step():
    choices = planner.Choices(network="tcp-10")
    found = scaling("llama-3.1-8b", "dgx-h100", choices, sizes="32", max_global_batch_size="128")
    point = found.networks[0].points[0]
    time = point.ranked.time
    other = sum(getattr(time, each.name) for each in fields(time) if not each.name.endswith("_exposed"))
    assert point.exposed == pytest.approx(1 - float(other) / float(time.total))
    assert point.exposed > 0.3


def test_a_network_stops_paying_at_the_first_doubling_that_brings_less_than_half():
    found = scaling("llama-3.1-8b", "dgx-h100", planner.Choices(network="tcp-100,ib-ndr400"), sizes="8..512")
    for each in found.networks:
        speeds = {point.gpus: float(point.ranked.speed.tokens_per_s) for point in each.points}
        failing = [gpus for gpus in speeds if 2 * gpus in speeds and speeds[2 * gpus] < PAYS * speeds[gpus]]
        assert each.pays == (failing[0] if failing else 512)
    assert found.networks[0].pays < found.networks[1].pays == 512


@pytest.mark.parametrize("network", ["tcp-10", "tcp-25", "tcp-100", "ib-ndr400"])
def test_the_crossover_is_the_smallest_batch_from_which_two_nodes_win(network):
    model, most = "llama-3.2-1b", 1024
    found = scaling(
        model, "dgx-h100", planner.Choices(network=network), sizes="8", max_global_batch_size=str(most)
    ).networks[0]
    multiples = {2**i for i in range(11)} | set(range(16, most + 1, 16))

    def wins(batch):
        one = recommended(model, "1xdgx-h100", network=network, global_batch_size=batch)
        two = recommended(model, "2xdgx-h100", network=network, global_batch_size=batch)
        return two.step_time < one.step_time

    tokens = found.crossover.tokens
    if tokens is None:
        assert not wins(most)
    else:
        assert wins(tokens * 16 // 4096)
        smaller = [batch for batch in sorted(multiples) if batch * 4096 < tokens * 16]
        for batch in smaller[-3:] + smaller[:3]:
            assert not wins(batch), batch
    assert network in found.crossover_words


def test_a_crossover_is_found_between_powers_of_two():
    class Fake:
        def __init__(self, time):
            self.step_time = time

    reference = scaling("gpt2", "dgx-h100", sizes="8").reference
    plan = lambda gpus, batch: Fake(batch * 8 / gpus + (150 if gpus > 8 else 0))  # noqa: E731
    found = crossover(plan, reference, 4096)
    seq_len = reference.question.workload.seq_len
    # batch / 2 + 150 < batch from 301 sequences on; multiples of 16 GPUs: 304
    assert (found.tokens, found.below) == (304 * seq_len // 16, 288 * seq_len // 16)
    assert crossover(plan, reference, 256).tokens is None


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ("9..15", "no size in 9..15: sizes are one dgx-h100 node of 8 GPUs, doubled"),
        ("64..8", "no size in 64..8"),
        ("0", "no size in 0"),
        ("many", "write a number of GPUs or a range such as 8..16384, not 'many'"),
        ("-8..8", "write a number of GPUs"),
    ],
)
def test_sizes_that_are_none_say_what_would_be_right(sizes, words):
    with pytest.raises(planner.SpecError, match=f"--gpus: .*{words}"):
        scaling("gpt2", "dgx-h100", sizes=sizes)
