"""The shipped hardware: every file loads, every figure can be traced, and the famous ones are right."""

import tomllib
from pathlib import Path

import pytest

from planner.catalogue.hardware import (
    accelerator,
    accelerator_names,
    cluster,
    network,
    network_names,
    node,
    node_names,
    standard_node,
)
from planner.catalogue.names import FOLDER, normalised
from planner.catalogue.prices import usd_per_gpu_hour
from planner.errors import SpecError
from planner.quantities import GIB
from planner.spec.cluster import Wiring
from planner.spec.mesh import pair_bandwidth
from planner.spec.read_node import FABRIC_KINDS

ACCELERATORS = sorted(accelerator_names())
NODES = sorted(node_names())
NETWORKS = sorted(network_names())
FILES = sorted(FOLDER.glob("accelerators/*.toml")) + sorted(FOLDER.glob("nodes/*.toml")) + [FOLDER / "networks.toml"]


def figures(entries, path=""):
    """Every table with a value, wherever it stands in a file, and each peak or price with its group's keys."""
    for key, value in entries.items():
        if isinstance(value, dict):
            if "value" in value or "low" in value or (key == "peak" and "unit" in value):
                yield f"{path}{key}", value
            yield from figures(value, f"{path}{key}.")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_figure_has_a_unit_and_either_source_and_date_or_an_empty_source(file):
    found = list(figures(tomllib.loads(file.read_text())))
    assert found
    for key, figure in found:
        assert figure.get("unit"), f"{file.name}: {key} has no unit"
        assert "source" in figure, f"{file.name}: {key} does not say where it comes from"
        assert bool(figure["source"]) <= ("read" in figure), f"{file.name}: {key} has a source but no date"


@pytest.mark.parametrize("name", ACCELERATORS)
def test_accelerator_is_plausible(name):
    part = accelerator(name)
    assert part.name == name
    assert 0.9 < part.usable_memory / part.memory < 1
    assert 10 * GIB < part.memory < 400 * GIB
    assert 0.2e12 < part.memory_bandwidth < 10e12
    assert 15e9 < part.pcie_bandwidth < 500e9
    assert 10 < part.multiprocessors < 400
    assert 50 < part.power < 1500
    assert {"fp16", "bf16"} & set(part.peak)
    sixteen_bit = part.peak.get("bf16", part.peak.get("fp16"))
    assert part.peak.get("fp8", sixteen_bit) in (
        pytest.approx(sixteen_bit, rel=0.01),
        pytest.approx(2 * sixteen_bit, rel=0.02),
    )
    assert set(part.sources) >= {f"peak.{precision}" for precision in part.peak} | {"usable_memory", "memory"}


@pytest.mark.parametrize("name", ACCELERATORS)
def test_standard_node_holds_its_accelerator(name):
    standard = standard_node(name)
    assert standard, f"{name}.toml names no standard_node"
    assert node(standard).accelerator.name == name


@pytest.mark.parametrize("name", NODES)
def test_node_is_plausible(name):
    machine = node(name)
    assert machine.name == name
    assert 1 <= machine.gpus_per_node <= 16
    assert 5e9 < machine.link_bandwidth <= 900e9
    assert 0 < machine.link_latency < 20e-6
    assert machine.fabric.kind in FABRIC_KINDS
    assert machine.fabric.nics_per_node >= 1
    assert 1e9 < machine.fabric.node_bandwidth <= 800e9
    assert machine.host_memory > 100 * GIB
    assert 100e9 < machine.host_memory_bandwidth < 3000e9


@pytest.mark.parametrize("name", [name for name in NODES if node(name).wiring is Wiring.MESH])
def test_links_of_a_mesh_sum_to_the_link_bandwidth(name):
    machine = node(name)
    sums = [pair_bandwidth(machine.link_pairs, gpu) for gpu in range(machine.gpus_per_node)]
    assert max(sums) == pytest.approx(machine.link_bandwidth)
    if machine.accelerator.name != "mi250x":
        assert min(sums) == pytest.approx(max(sums)), "all accelerators of a mesh are linked alike"


def test_names_and_aliases_are_unique_across_accelerators_and_node_types():
    spellings = {}
    for names in (accelerator_names(), node_names()):
        for slug, aliases in names.items():
            for spelling in {normalised(slug), *map(normalised, aliases)}:
                assert spellings.setdefault(spelling, slug) == slug
    networks = [name for slug, aliases in network_names().items() for name in (slug, *aliases)]
    assert len(networks) == len(set(networks))


def test_slugs_are_lower_case_words_joined_by_hyphens():
    assert all(name == normalised(name) for name in (*ACCELERATORS, *NODES, *NETWORKS))


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("H100", "h100-sxm"),
        ("H100-SXM5-80GB", "h100-sxm"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("h100-sxm5-96gb-hbm2e-500w", "h100-sxm-96gb"),
        ("a100", "a100-sxm-80gb"),
        ("A100-80GB", "a100-sxm-80gb"),
        ("NVIDIA A100-SXM4-40GB", "a100-sxm-40gb"),
        ("4090", "rtx-4090"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("rtx_4090", "rtx-4090"),
        ("Tesla V100-SXM2-32GB", "v100-sxm2-32gb"),
        ("V100-SXM3-32GB", "v100-sxm2-32gb"),
        ("A800-80GB", "a800-sxm-80gb"),
        ("H800-80GB", "h800-sxm"),
        ("H200-NVL-141GB", "h200-nvl"),
        ("GH200-96GB", "gh200-96gb"),
        ("GB300-288GB", "gb300"),
        ("AMD Instinct MI300X", "mi300x"),
    ],
)
def test_common_spellings_are_understood(spelling, name):
    assert accelerator(spelling).name == name


def test_every_name_of_the_measured_data_is_known():
    data = Path(__file__).parents[2] / "../shared/data/accelerators.csv"
    if not data.exists():
        pytest.skip("the collection of measured data is not beside this repository")
    names = [line.split(",")[0] for line in data.read_text().splitlines()[1:]]
    assert all(accelerator(name) for name in names if not name.startswith("TPU"))
    systems = [line.split(",")[0] for line in (data.parent / "systems.csv").read_text().splitlines()[1:]]
    assert all(node(name) for name in systems)


def test_peaks_are_dense_and_accumulate_in_fp32():
    assert accelerator("h100").peak["bf16"] == 989e12, "1979 is the sparse peak"
    assert accelerator("rtx-4090").peak["fp16"] == 165.2e12, "330 accumulates in fp16"
    assert accelerator("a100").peak == {"fp32": 19.5e12, "tf32": 156e12, "fp16": 312e12, "bf16": 312e12}
    assert accelerator("gb200").peak["bf16"] == 2500e12, "5000 is a superchip of two"
    assert accelerator("mi250x").peak["bf16"] == 191.5e12, "383 is a package of two dies"
    assert "bf16" not in accelerator("v100").peak
    assert "fp8" not in accelerator("a100").peak


def test_a_figure_of_both_directions_is_halved():
    assert node("dgx-h100").link_bandwidth == 450e9
    assert node("dgx-a100").link_bandwidth == 300e9
    assert node("dgx-b200").link_bandwidth == 900e9
    assert node("hgx-h800").link_bandwidth == 200e9


def test_memory_is_what_the_framework_reports():
    reported = {"h100": 79.1, "rtx-3090": 23.56, "v100-sxm2-16gb": 15.77, "v100-sxm2-32gb": 31.74, "mi300x": 191.98}
    for name, gib in reported.items():
        assert accelerator(name).usable_memory / GIB == pytest.approx(gib, abs=0.02)
    assert accelerator("l40s").usable_memory / GIB == pytest.approx(44.4, abs=0.05), "ECC lives in the same memory"


def test_dies_of_one_package_are_devices_of_their_own():
    die = accelerator("mi250x")
    assert die.memory == 64 * GIB
    assert die.memory_bandwidth == pytest.approx(1.64e12)
    assert node("frontier").gpus_per_node == 8


def test_hybrid_cube_mesh_has_single_double_and_missing_links():
    pairs = node("dgx-1-v100").link_pairs
    assert sorted(set(pairs.values())) == [25e9, 50e9]
    assert len(pairs) == 16
    assert (0, 7) not in pairs
    assert all(pair_bandwidth(pairs, gpu) == 150e9 for gpu in range(8))


def test_cloud_figures_leave_out_the_host_nic():
    assert node("aws-p4d").fabric.node_bandwidth == 50e9
    assert node("aws-p5").fabric.node_bandwidth == 400e9
    assert node("gcp-a3-highgpu-8g").fabric.node_bandwidth == 100e9
    assert node("gcp-a3-megagpu-8g").fabric.node_bandwidth == 200e9


def test_geforce_cards_have_no_peer_access():
    assert node("pcie-8x-rtx-4090").wiring is Wiring.HOST
    assert node("pcie-8x-l40s").wiring is Wiring.PCIE
    assert node("pcie-8x-rtx-4090").link_bandwidth == pytest.approx(31.5e9)


def test_rack_of_gb200_is_one_link_domain_of_72():
    tray = node("gb200-nvl72")
    assert tray.gpus_per_node * tray.domain_nodes == 72


def test_network_takes_its_number_of_nics_from_the_text_itself_or_the_node():
    assert network("roce-400x4").nics_per_node == 4
    assert network("efa-3200").node_bandwidth == 400e9
    assert network("tcp-10").nics_per_node == 1
    assert network("NDR").name == "ib-ndr400"
    big, small = cluster("2xdgx-h100"), cluster("16xrtx-4090")
    assert big.with_fabric(network("ib-hdr200")).node.fabric.node_bandwidth == 200e9
    assert small.with_fabric(network("ib-hdr200")).node.fabric.node_bandwidth == 25e9
    assert big.with_fabric(network("ib-hdr200x2")).notes == ("network ib-hdr200: 2 NICs per dgx-h100 node",)


def test_unknown_names_are_answered_with_the_nearest():
    for ask, wanted in ((accelerator, "h10O"), (node, "dgx-h10"), (network, "ib-ndr40"), (cluster, "8xdgx-h10")):
        with pytest.raises(SpecError, match="did you mean"):
            ask(wanted)


def test_nodes_of_a_named_type():
    machines = cluster("4xdgx-h100")
    assert (machines.num_nodes, machines.world_size, machines.name) == (4, 32, "4xdgx-h100")
    assert machines.notes == ()


def test_many_accelerators_sit_in_whole_standard_nodes_and_the_note_says_so():
    machines = cluster("64xh100-sxm")
    assert (machines.name, machines.num_nodes, machines.node.gpus_per_node) == ("8xhgx-h100", 8, 8)
    assert machines.notes == ("64xh100-sxm is taken as 8xhgx-h100",)


def test_few_accelerators_share_one_host_and_its_nics_and_memory():
    whole, part = node("hgx-h100"), cluster("4xh100-sxm").node
    assert part.gpus_per_node == 4
    assert part.fabric.nics_per_node == 4
    assert part.sockets == 1
    assert part.host_memory == whole.host_memory / 2
    assert part.link_bandwidth == whole.link_bandwidth, "a switch gives every accelerator its full rate"
    assert cluster("2xrtx-4090").node.fabric.nics_per_node == 1


def test_part_of_a_mesh_keeps_only_its_own_links():
    assert cluster("2xmi300x").node.link_bandwidth == 64e9
    assert cluster("4xmi300x").node.link_bandwidth == 3 * 64e9
    assert cluster("1xmi300x").node.link_bandwidth == 448e9
    quad = cluster("4xv100").node
    assert set(quad.link_pairs) == {(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)}
    assert quad.link_bandwidth == 125e9


@pytest.mark.parametrize(
    ("text", "possible"), [("12xh100", "8 on one host, or 16"), ("6xgh200", "4 on one host, or 8")]
)
def test_a_count_that_fills_no_whole_nodes_says_what_would(text, possible):
    with pytest.raises(SpecError, match=possible):
        cluster(text)


@pytest.mark.parametrize(
    "text", ["", "h100", "dgx-h100", "0xh100", "-1xh100", "8x", "xh100", "8.5xh100", "9" * 5000 + "xh100"]
)
def test_a_cluster_text_without_a_sound_count_is_refused(text):
    with pytest.raises(SpecError):
        cluster(text)


def test_a_rack_says_that_its_node_is_a_tray():
    assert any("18 trays share one link domain (72 accelerators" in note for note in cluster("72xgb200").notes)


def test_price_of_a_node_type_goes_before_the_market_range_of_its_accelerator():
    own, market = usd_per_gpu_hour(cluster("2xaws-p5")), usd_per_gpu_hour(cluster("2xdgx-h100"))
    assert (own.low, own.high, own.date) == (6.88, 6.88, "2026-11")
    assert (market.low, market.high, market.date) == (1.99, 5.0, "2026-05")
    assert usd_per_gpu_hour(cluster("8xh20")) is None


def test_only_the_files_that_are_asked_for_are_parsed(monkeypatch):
    from planner.catalogue import hardware

    parsed = []
    read = hardware.read_toml
    monkeypatch.setattr(hardware, "read_toml", lambda path: parsed.append(path.name) or read(path))
    for cached in (hardware._accelerator, hardware._node):
        cached.cache_clear()
    cluster("8xdgx-h100")
    assert {"dgx-h100.toml", "h100-sxm.toml"} <= set(parsed) <= {"dgx-h100.toml", "h100-sxm.toml", "networks.toml"}
