"""Cluster files: the documented ones load, and every mistake is one line that names file and key."""

import re
import tomllib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.catalogue.collectives import kinds
from planner.catalogue.hardware import LOOKUP, cluster
from planner.catalogue.prices import usd_per_gpu_hour
from planner.errors import FileFormatError, SpecError
from planner.quantities import GIB
from planner.spec.cluster import Cluster, Wiring
from planner.spec.read_cluster import read_cluster
from planner.spec.read_node import FABRIC_KINDS, LINKS

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLES = sorted((DOCS / "examples").glob("cluster-*.toml"))
SIMPLE = 'nodes = 2\nnode = "dgx-h100"\n'


@pytest.fixture
def read(tmp_path):
    def read_text(text: str) -> Cluster:
        path = tmp_path / "my.toml"
        path.write_text(text, encoding="utf-8")
        return read_cluster(path, LOOKUP)

    return read_text


def example(name):
    return cluster(str(DOCS / "examples" / f"cluster-{name}.toml"))


def test_simple_example_has_its_own_network_and_price():
    machines = example("simple")
    assert (machines.name, machines.num_nodes, machines.world_size) == ("cluster-simple", 4, 32)
    assert machines.node.fabric.name == "roce-400"
    assert machines.node.fabric.node_bandwidth == 4 * 50e9
    price = usd_per_gpu_hour(machines)
    assert (price.low, price.high) == (2.4, 2.4)


def test_own_accelerator_starts_from_its_base():
    part = example("own-accelerator").accelerator
    assert (part.name, part.power, part.usable_memory) == ("h100-pcie-250w", 250.0, 78.5 * GIB)
    assert part.multiprocessors == 114, "not stated, hence the base's"
    assert set(part.peak) == {"tf32", "bf16", "fp16"}, "the table of peaks replaces the base's"
    assert part.sources["memory_bandwidth"].source == "vendor datasheet, page 2"


def test_own_chassis_has_an_oversubscribed_network():
    node = example("own-accelerator").node
    assert (node.gpus_per_node, node.wiring, node.fabric.nics_per_node) == (4, Wiring.PCIE, 2)
    assert (node.fabric.oversubscription, node.fabric.nodes_per_leaf) == (2.0, 16)
    assert node.fabric.nic_bandwidth == 12.5e9


def test_mesh_example_is_a_ring_whose_links_are_halved():
    node = example("mesh").node
    assert node.link_pairs[0, 1] == 4 * 25e9
    assert (0, 2) not in node.link_pairs
    assert node.link_bandwidth == 200e9


def test_mixed_example_is_paced_by_its_slowest_accelerator():
    machines = example("mixed")
    assert [pool.node.name for pool in machines.pools] == ["dgx-h100", "dgx-a100"]
    assert machines.world_size == 4 * 8 + 8 * 8
    assert machines.accelerator.name == "a100-sxm-80gb"
    assert "mixed accelerators" in machines.notes[0]


def test_sites_example_has_a_wan_of_8_ms():
    machines = example("two-sites")
    assert {pool.site for pool in machines.pools} == {"amsterdam", "frankfurt"}
    assert (machines.wan.bandwidth, machines.wan.latency, machines.wan.spread) == (12.5e9, 8e-3, 0.2)


def test_every_example_is_documented_and_every_documented_example_exists():
    linked = set(re.findall(r"examples/(cluster-[\w-]+\.toml)", (DOCS / "cluster.md").read_text()))
    assert linked == {path.name for path in EXAMPLES}


def test_every_toml_block_of_the_documentation_is_a_cluster(read):
    blocks = re.findall(r"```toml\n(.*?)```", (DOCS / "cluster.md").read_text(), flags=re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        assert read(block).world_size >= 16


def test_price_range_of_a_mixed_cluster_is_weighed_by_its_accelerators(read):
    pools = '[[pools]]\nnodes = {}\nnode = "dgx-{}"\nusd_per_gpu_hour = [{}, {}]\n'
    machines = read(pools.format(1, "h100", 2, 4) + pools.format(3, "a100", 1, 1))
    price = usd_per_gpu_hour(machines)
    assert (price.low, price.high) == pytest.approx((1.25, 1.75))


def test_fewer_accelerators_than_the_base_has_are_its_first_ones(read):
    machines = read('nodes = 2\nnode = { base = "mi300x-8x", gpus_per_node = 4 }')
    assert machines.node.link_bandwidth == 3 * 64e9
    assert machines.node.fabric.nics_per_node == 4


def test_oversubscription_alone_keeps_the_node_types_network(read):
    fabric = read(SIMPLE + "network = { oversubscription = 3, nodes_per_leaf = 8 }").node.fabric
    assert (fabric.name, fabric.node_bandwidth, fabric.oversubscription) == ("ib-ndr400", 400e9, 3.0)


def test_three_tiers_example_is_a_fabric_of_racks_pods_and_a_thin_core():
    fabric = example("three-tiers").node.fabric
    assert (fabric.nodes_per_leaf, fabric.nodes_per_pod, fabric.pod_oversubscription) == (2, 384, 7.0)
    assert fabric.thin_blocks == (384,)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nodes = 2", "my.toml: lacks node"),
        ('node = "dgx-h100"', "my.toml: lacks nodes"),
        ('nodes = 0\nnode = "dgx-h100"', "my.toml: nodes: must be 1 to"),
        ('nodes = -3\nnode = "dgx-h100"', "my.toml: nodes: must be 1 to"),
        ('nodes = 2.5\nnode = "dgx-h100"', "my.toml: nodes: must be a whole number"),
        ('nodes = true\nnode = "dgx-h100"', "my.toml: nodes: must be a whole number"),
        ('nodes = "2"\nnode = "dgx-h100"', "my.toml: nodes: must be a whole number"),
        (f'nodes = {10**18}\nnode = "dgx-h100"', "my.toml: nodes: must be 1 to"),
        ('nodes = 2\nnode = "dgx-h10"', "my.toml: node: unknown node type.*did you mean dgx-h100"),
        ('nodes = 2\nnode = ""', "my.toml: node: unknown node type"),
        (
            'nodes = 2\nnode = { base = "dgx-h100", link = "nvlink9" }',
            "my.toml: node.link: unknown link 'nvlink9'; did you",
        ),
        (
            'nodes = 2\nnode = { base = "dgx-h100", wiring = "host" }',
            "my.toml: node.link: nvlink4 is no link of wiring host",
        ),
        ('nodes = 2\nnode = { base = "pcie-8x-l40s", gpus_per_node = 64 }', "node.gpus_per_node: must be 1 to 32 with"),
        ("nodes = 2\nnode = 7", "my.toml: node: must be the name of a node type or a table"),
        ('nodes = 2\nnode = { base = "dgx-h100", gpus_per_node = 0 }', "my.toml: node.gpus_per_node: must be 1 to"),
        ('nodes = 2\nnode = { base = "dgx-h100", link_bandwidth = "400 gbps" }', "link_bandwidth: unknown unit 'gbps'"),
        ('nodes = 2\nnode = { base = "dgx-h100", link_bandwith = "4 GB/s" }', "did you mean link_bandwidth"),
        ('nodes = 2\nnode = { base = "dgx-h100", wiring = "nvswitch" }', "node.wiring: unknown wiring 'nvswitch'"),
        ('nodes = 2\nnode = { base = "dgx-h100", wiring = "mesh" }', "a mesh needs link_pairs"),
        ('nodes = 2\nnode = { base = "mi300x-8x", gpus_per_node = 16 }', "more accelerators needs link_pairs"),
        ('nodes = 2\nnode = { base = "dgx-h100", in_network_reduction = 1 }', "must be true or false"),
        ("nodes = 2\nnode = { gpus_per_node = 8 }", "my.toml: node: lacks accelerator, wiring, link"),
        (SIMPLE + 'network = "ib-ndr40"', "my.toml: network: unknown network.*did you mean ib-ndr400"),
        (SIMPLE + 'network = "ib-ndr400x0"', "my.toml: network: NICs: must be 1 to"),
        (SIMPLE + "network = { nics_per_node = 0 }", "my.toml: network.nics_per_node: must be 1 to"),
        (SIMPLE + "network = { oversubscription = 0.5 }", "oversubscription: must be at least 1"),
        (SIMPLE + 'network = { kind = "infiniband" }', "my.toml: network: lacks nic_bandwidth, latency"),
        (SIMPLE + 'network = { kind = "token-ring", nic_bandwidth = "1 Gb/s" }', "unknown kind of network"),
        (SIMPLE + "[accelerator]\nmemory = -1", "my.toml: accelerator.memory: needs a unit"),
        (SIMPLE + '[accelerator]\nmemory = "nan GiB"', "my.toml: accelerator.memory: must be a figure"),
        (SIMPLE + "[accelerator]\npeak = { bf16 = 989 }", "my.toml: accelerator.peak.bf16: needs a unit"),
        (SIMPLE + '[accelerator]\npeak = { bf17 = "989 TFLOP/s" }', "did you mean .*bf16"),
        (SIMPLE + "[accelerator]\npeak = {}", "names no precision"),
        (SIMPLE + "[accelerator]\npcie_generation = 9", "pcie_generation: must be one of 3, 4, 5"),
        (SIMPLE + "usd_per_gpu_hour = -2", "my.toml: usd_per_gpu_hour.low: must be positive"),
        (SIMPLE + "usd_per_gpu_hour = [5, 2]", "low 5 is above high 2"),
        (SIMPLE + "usd_per_gpu_hour = [1, 2, 3]", "my.toml: usd_per_gpu_hour: must be a number, a pair"),
        (SIMPLE + "usd_per_gpu_hour = 1e9", "my.toml: usd_per_gpu_hour.low: must be at most 1e"),
        (SIMPLE + 'name = "a\\u001b[31m"', "my.toml: name: must be one line of printable characters"),
        (SIMPLE + '[accelerator]\nmemory = "1e300 GiB"', "my.toml: accelerator.memory: must be 1 to 1e"),
        (
            SIMPLE + '[accelerator]\nusable_memory = "800 GiB"',
            "usable memory of 800.0 GiB is more than the memory of 80",
        ),
        (SIMPLE + 'network = { latency = "1e300 s" }', "my.toml: network.latency: must be 1e-12 to"),
        (
            SIMPLE + "network = { nodes_per_leaf = 4, nodes_per_pod = 6 }",
            "nodes_per_pod: must be a multiple of nodes_per_l",
        ),
        (SIMPLE + "network = { pod_oversubscription = 2 }", "pod_oversubscription: needs nodes_per_pod"),
        (SIMPLE + "network = { oversubscription = 1e300 }", "oversubscription: must be at most 1000"),
        ('nodes = 2\nnode = { base = "dgx-h100", sockets = 1000 }', "my.toml: node.sockets: must be 1 to 32"),
        (17 * "[[pools]]\nnodes = 1\nnode = 'dgx-h100'\n", "my.toml: pools: must be 16 pools at most, not 17"),
        (2 * "[[pools]]\nnodes = 9999\nnode = 'dgx-h100'\n", "my.toml: pools: the pools have more than 2,048 nodes"),
        (SIMPLE + "colour = 1", "my.toml: unknown key 'colour'"),
        (SIMPLE + "[wan]\nbandwidth = '1 Gb/s'\nlatency = '1 ms'", "my.toml: wan: joins nothing"),
        (SIMPLE + "[[pools]]\nnodes = 1\nnode = 'dgx-h100'", "belongs into each"),
        ("pools = []", "my.toml: pools: must be a list"),
        ("pools = [3]", r"my.toml: pools\[0\]: must be a table"),
        ("[[pools]]\nnodes = 1\nnode = 'dgx-h100'\nsite = 4", r"my.toml: pools\[0\].site: must be text"),
        (
            "[[pools]]\nnodes = 1\nnode = 'dgx-h100'\nsite = 'a'\n[[pools]]\nnodes = 1\nnode = 'dgx-h100'\nsite = 'b'",
            r"sites 'a', 'b' need a \[wan\]",
        ),
    ],
)
def test_a_mistake_is_one_line_that_names_file_and_key(read, text, says):
    with pytest.raises(FileFormatError, match=says) as error:
        read(text)
    assert "\n" not in str(error.value)
    assert error.value.exit_code == 4


MESH = """nodes = 1
[node]
accelerator = "a100"
gpus_per_node = 4
wiring = "mesh"
link = "nvlink3"
link_latency = "2 us"
network = "ib-hdr200"
"""


@pytest.mark.parametrize(
    ("pairs", "says"),
    [
        ('"0-4" = 1', "'0-4' is no pair"),
        ('"1-0" = 1', "'1-0' is no pair"),
        ('"2-2" = 1', "'2-2' is no pair"),
        ('"one" = 1', "'one' is no pair"),
        ('"0-1" = 0', "must be 1 to 64"),
        ("", "links nothing"),
    ],
)
def test_pairs_of_a_mesh_must_be_pairs_of_its_accelerators(read, pairs, says):
    with pytest.raises(SpecError, match=says):
        read(f'{MESH}[node.link_pairs]\nvalue = 25\nunit = "GB/s"\npairs = {{ {pairs} }}\n')


def test_link_bandwidth_that_the_pairs_contradict_is_refused(read):
    text = MESH.replace("link_latency", 'link_bandwidth = "300 GB/s"\nlink_latency')
    with pytest.raises(SpecError, match="link_pairs sum to 75 GB/s an accelerator, but link_bandwidth says 300"):
        read(f'{text}[node.link_pairs]\nvalue = 25\nunit = "GB/s"\npairs = "all"\n')


@pytest.mark.parametrize("text", ["nodes = = 2", "[a\n", 'x = "\\q"', "a = 1\na = 2", "[" * 5000, f"x = {'9' * 5000}"])
def test_a_malformed_file_is_said_to_be_one(read, text):
    with pytest.raises(FileFormatError, match="is not TOML"):
        read(text)


def test_a_missing_or_binary_file_or_a_folder_cannot_be_read(tmp_path):
    with pytest.raises(FileFormatError, match="No such file"):
        cluster(str(tmp_path / "missing.toml"))
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FileFormatError, match="not UTF-8"):
        cluster(str(tmp_path / "binary.toml"))
    with pytest.raises(FileFormatError, match="cannot be read"):
        cluster(str(tmp_path) + "/")


values = st.recursive(
    st.booleans() | st.integers(-5, 10**20) | st.floats() | st.sampled_from(["dgx-h100", "400 Gb/s", "gbps", ""]),
    lambda children: st.lists(children, max_size=2) | st.dictionaries(st.sampled_from(["base", "value"]), children),
    max_leaves=4,
)


def as_toml(value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {as_toml(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(as_toml, value)) + "]"
    return f'"{value}"' if isinstance(value, str) else repr(value)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(
    key=st.sampled_from(["nodes", "node", "network", "accelerator", "usd_per_gpu_hour", "pools", "wan", "name"]),
    value=values,
)
def test_any_value_of_any_key_gives_a_cluster_or_one_line_of_error(read, key, value):
    entries = {"nodes": "2", "node": '"dgx-h100"'} | {key: as_toml(value)}
    text = "\n".join(f"{name} = {entry}" for name, entry in entries.items())
    assert tomllib.loads(text)
    message, world_size = "", 8
    try:
        world_size = read(text).world_size
    except SpecError as error:
        message = str(error)
    assert "\n" not in message
    assert world_size >= 8


def test_links_and_networks_that_a_file_may_name_are_those_whose_efficiencies_are_known():
    derived = {kind for kind in kinds() if "-" in kind}
    assert set(kinds()) - derived - {"wan", "tcpxo"} == {*LINKS, *FABRIC_KINDS}
