import json
from dataclasses import replace

import pytest

from planner.errors import FileFormatError
from planner.spec.accelerator import Accelerator, Source
from planner.spec.cluster import Cluster, Fabric, Node, Pool, Wan, Wiring
from planner.spec.codec import content_hash
from planner.spec.model import Attention, Experts, LatentAttention, Layer, Mlp, Model
from planner.spec.plan import Plan, Schedule, Sharding
from planner.spec.plan_file import PlanFile, ProfileReference, read_plan_file, write_plan_file
from planner.spec.stack import Stack
from planner.spec.workload import Workload

GPU = Accelerator(
    name="h100-sxm",
    vendor="nvidia",
    architecture="hopper",
    memory=80e9,
    usable_memory=79.1 * 2**30,
    memory_bandwidth=3.35e12,
    peak={"bf16": 989.4e12},
    multiprocessors=132,
    pcie_bandwidth=63e9,
    sources={"memory": Source("datasheet", "2026-08-20")},
    usd_per_hour=(2.0, 5.0),
)
FABRIC = Fabric("ib-ndr400", "infiniband", nics_per_node=8, nic_bandwidth=50e9, latency=3e-6)
NODE = Node("dgx-h100", GPU, 8, Wiring.SWITCH, "nvlink4", 450e9, 2e-6, FABRIC, link_pairs={(0, 1): 25e9})
CLUSTER = Cluster("2xdgx-h100", (Pool(NODE, 2, site="here"),), wan=Wan(1e9, 0.02))
DENSE = Layer(Attention(128, 128, 192, latent=LatentAttention(1536, 512, 128, 64, 128)), Mlp(18432))
SPARSE = replace(DENSE, mlp=Mlp(2048), experts=Experts(256, 8, Mlp(2048)))
MODEL = Model("like-deepseek", 7168, 129280, (DENSE,) * 3 + (SPARSE,) * 58)
PLAN = Plan(
    tp=2,
    pp=2,
    dp_shard=4,
    sharding=Sharding.ZERO3,
    schedule=Schedule.INTERLEAVED,
    virtual_stages=2,
    sequence_parallel=1,
)
CONTENTS = PlanFile(
    plan=PLAN,
    model=MODEL,
    cluster=CLUSTER,
    workload=Workload(128, 4096, optimizer="adamw-8bit"),
    stack=Stack("megatron-core"),
    profile=ProfileReference("h100-sxm/megatron-core", "0123456789ab", "datasheet"),
    prediction={"step_time_s": 3.25, "memory_verdict": "fits"},
    command="planner recommend like-deepseek 2xdgx-h100",
)


@pytest.fixture
def path(tmp_path):
    return write_plan_file(CONTENTS, tmp_path / "run")


def spoil(path, change):
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


def test_what_is_read_is_what_was_written(path):
    read = read_plan_file(path)
    assert read.plan.as_dict() == PLAN.as_dict()
    for name in ("model", "cluster", "workload", "stack", "profile", "prediction", "command"):
        assert getattr(read, name) == getattr(CONTENTS, name), name


def test_kinds_are_written_by_name_and_equal_layers_once(path):
    data = json.loads(path.read_text())
    assert data["schema_version"] == 1
    assert (data["plan"]["sharding"], data["plan"]["schedule"]) == ("zero3", "interleaved")
    assert data["plan"]["sequence_parallel"] is True
    assert [run["count"] for run in data["model"]["layers"]] == [3, 58]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(schema_version=2), "schema_version should be 1, not 2"),
        (lambda d: d["plan"].update(sharding="zero4"), "unknown Sharding 'zero4'; known: none, zero1"),
        (lambda d: d["plan"].update(tp=4), "for 32 ranks but the cluster has 16"),
        (lambda d: d["plan"].update(tp="2"), r"plan\.tp: must be a whole number, not '2'"),
        (lambda d: d["plan"].update(warp=9), "unknown key 'warp' in a Plan"),
        (lambda d: d["model"].pop("hidden_size"), "missing key 'hidden_size' in a Model"),
        (lambda d: d["model"]["layers"][0].update(count=10**9), "must be 1 to 10,000"),
        (lambda d: d.update(workload=[]), "workload: must be an object"),
        (lambda d: d["plan"].update(compiled=1), "compiled: must be true or false"),
        (lambda d: d["plan"].update(tp=-2), r"plan\.json: plan\.tp: must be a whole number from 0 to 1e"),
        (lambda d: d["plan"].update(virtual_stages=0), r"plan\.virtual_stages: must be at least 1"),
        (lambda d: d["cluster"]["pools"][0]["node"].update(link="nvlink9"), "did you mean nvlink5"),
        (lambda d: d.update(prediction={"step_time_s": float("nan")}), "prediction: should be an object of finite"),
        (lambda d: d.update(prediction=[[]]), "prediction: should be an object of finite numbers"),
        (lambda d: d["workload"].update(seq_len=10**400), "seq_len: must be a whole number from 0 to 1e"),
        (lambda d: d["stack"].update(context=float("nan")), r"stack\.context: must be a number from 0 to 1e"),
        (lambda d: d["stack"].update(context=float("inf")), r"stack\.context: must be a number from 0 to 1e"),
        (lambda d: d["model"].update(vocab_size=float("inf")), r"model\.vocab_size: must be a whole number from 0"),
        (
            lambda d: d["cluster"]["pools"][0]["node"].update(sockets=10**9),
            r"pools\[0\]\.node\.sockets: must be 1 to 32",
        ),
        (lambda d: d["cluster"]["pools"][0]["node"]["fabric"].update(nics_per_node=10**9), "nics_per_node: must be 0"),
    ],
)
def test_a_wrong_value_is_named_with_its_place(path, change, message):
    spoil(path, change)
    with pytest.raises(FileFormatError, match=message) as error:
        read_plan_file(path)
    assert str(error.value).startswith(str(path))


@pytest.mark.parametrize("text", ["", "{", "[]", "7", "[" * 100_000])
def test_what_is_no_plan_is_refused(tmp_path, text):
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(FileFormatError):
        read_plan_file(path)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(FileFormatError, match="No such file"):
        read_plan_file(tmp_path / "none.json")


def test_a_config_where_a_plan_belongs_is_told_from_a_broken_plan(tmp_path):
    path = tmp_path / "config.json"
    path.write_text('{"model_type": "llama"}')
    with pytest.raises(FileFormatError, match="no schema_version: it is no plan"):
        read_plan_file(path)


def test_a_failed_write_leaves_nothing_behind(tmp_path):
    (tmp_path / "plan.json").mkdir()
    with pytest.raises(FileFormatError, match="cannot be written"):
        write_plan_file(CONTENTS, tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == ["plan.json"]


def test_the_hash_changes_with_any_value_and_only_then():
    same = replace(GPU, peak=dict(GPU.peak))
    assert content_hash(same) == content_hash(GPU)
    assert content_hash(replace(GPU, peak={"bf16": 989.5e12})) != content_hash(GPU)
