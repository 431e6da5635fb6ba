import pytest

from planner.catalogue.models import model
from planner.catalogue.stacks import stack
from planner.explain.volume import VOLUME_TERMS, sent_volume
from planner.spec.plan import Plan, Sharding
from planner.spec.workload import Workload

HSDP = Plan(tp=2, dp_shard=4, dp_replicate=2, sharding=Sharding.ZERO3, sequence_parallel=1)


@pytest.fixture
def sent():
    return sent_volume(model("llama-3.1-8b"), HSDP, Workload(8, 4096), stack())


def test_groups_that_send_nothing_are_left_out(sent):
    assert [group.group for group in sent.groups] == ["tp", "dp_shard", "dp_replicate"]
    alone = sent_volume(model("gpt2"), Plan(), Workload(1, 1024), stack())
    assert alone.groups == alone.formulas == ()


def test_words_name_collectives_with_their_sizes_where_there_are_several(sent):
    by_name = {group.group: group for group in sent.groups}
    assert by_name["dp_replicate"].words == "all-reduce"
    assert by_name["dp_shard"].words == "reduce-scatter 12 GB, all-gather 11.3 GB"


def test_plain_values_add_up_and_bear_their_unit(sent):
    plain = sent.as_dict()
    assert plain["role"] == "first"
    for group in plain["groups"]:
        assert group["sent_gb"] == pytest.approx(sum(group["collectives_gb"].values()))
    replicas = 2 * (1 / 2) * 4 * (8.03e9 / 2) / 4 / 1e9
    assert plain["groups"][2]["sent_gb"] == pytest.approx(replicas, rel=1e-3)


def test_each_formula_is_shown_once(sent):
    names = [formula.name.rpartition(".")[2] for formula in sent.formulas]
    assert sorted(names) == ["all_reduce_bytes", "gather_bytes"]
    assert set(VOLUME_TERMS) == {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send"}
