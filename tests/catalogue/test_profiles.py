import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from calibration.steps import toml
from planner.catalogue import learned as learning
from planner.catalogue import profiles
from planner.catalogue.collectives import COLLECTIVES, TREES, TWO_DOMAINS, collective_fits, kinds
from planner.catalogue.hardware import accelerator, accelerator_names, network, network_names, node, node_names
from planner.catalogue.kernel_tables import measured_parts
from planner.catalogue.learned import Learned, learned
from planner.catalogue.profiles import SITE_ERROR, TRANSFER_ERROR, UNMEASURED_ERROR, profile
from planner.catalogue.stacks import ancestry, stack, stack_names
from planner.cost.flops import attention_flops
from planner.cost.kernels import matmul_time
from planner.cost.optimizers import state_bytes
from planner.cost.states import mixed_precision_bytes
from planner.errors import SpecError
from planner.spec.cluster import Wiring
from planner.spec.json_files import read_json
from planner.spec.plan import ContextKind, Schedule, Sharding
from planner.spec.profile_file import read_profile
from planner.spec.workload import PRECISIONS

FOLDER = Path(profiles.__file__).parent
SHARED = Path(__file__).parents[2] / "../shared/data"
VOCABULARY = [
    "megatron-lm",
    "megatron-core",
    "megatron-bridge",
    "megatron-deepspeed",
    "nemo",
    "nemo-automodel",
    "mlperf-nemo",
    "mlperf-amd",
    "mlperf-gaudi",
    "primus",
    "llm-foundry",
    "torchtitan",
    "nanotron",
    "internevo",
    "kempnerforge",
    "fms-fsdp",
    "yafsdp",
    "fsdp1",
    "fsdp2",
    "hf",
    "hf-fsdp",
    "hf-deepspeed",
    "litgpt",
    "paddle",
    "maxtext",
    "colossalai",
    "alpa",
    "nnscaler",
    "llmboost",
    "pytorch",
    "other",
    "deepspeed",
]


@pytest.fixture
def taught(monkeypatch, tmp_path):
    """Lets a test say what campaigns taught; nothing else is known."""
    monkeypatch.setattr(learning, "PROFILES", tmp_path)

    def teach(name, stack_name, *, runs=20, **factors):
        path = tmp_path / name / f"{stack_name}.toml"
        path.parent.mkdir(exist_ok=True)
        start = Learned.of(profile(name, stack_name))
        path.write_text(toml(replace(start, error=0.04, runs=runs, sources=("by hand",), **factors)))
        forget()

    forget()
    yield teach
    forget()


def forget():
    learning.learned.cache_clear()


USUAL = (64, 4)
"""Sequences x heads, and query heads per key-value head."""


def kernel_files():
    return {name: read_json(FOLDER / "kernels" / f"{name}.json", schema_version=2) for name in measured_parts()}


def tables_of(data):
    yield from data["gemm"].values()
    yield from data["attention"]["kernels"].values()


@pytest.mark.parametrize("name", accelerator_names())
def test_every_accelerator_has_shares_of_peak_for_every_precision_and_backend(name):
    found = profile(name)
    assert set(found.gemm) == set(PRECISIONS)
    assert set(found.attention) >= {"flash", "sdpa"}
    tables = [*found.gemm.values(), *found.attention.values(), found.grouped_matmul]
    assert all(((table.values > 0) & (table.values <= 1)).all() for table in tables)
    assert found.error > 0


def test_measured_parts_are_in_the_catalogue_with_the_peak_that_their_shares_refer_to():
    for name, data in kernel_files().items():
        part = accelerator(name)
        assert data["peak_flops_per_s"] == pytest.approx(
            {key: part.peak[key] for key in data["peak_flops_per_s"]}, rel=2e-3
        )
        assert data["memory_bandwidth_bytes_per_s"] == pytest.approx(part.memory_bandwidth, rel=0.01)


def test_measured_tables_beat_the_parametric_formula_and_a_constant_on_shapes_that_were_held_out():
    for data in kernel_files().values():
        for table in data["gemm"].values():
            error = table["held_out_error"]
            used = error["tiled" if "tiles" in table else "table"]["median"]
            assert used < min(error["parametric"]["median"], error["constant"]["median"])
            assert used < 0.07
        for table in data["attention"]["kernels"].values():
            error = table["held_out_error"]
            assert error["table"]["median"] < 0.5 * error["constant"]["median"]


def test_every_kernel_file_says_where_it_comes_from():
    for data in kernel_files().values():
        assert "Apache-2.0" in data["source"]
        assert data["date"]
        assert all(table["library"] and table["points"] > 0 for table in tables_of(data))


@pytest.mark.skipif(not SHARED.exists(), reason="needs the measured kernel times")
def test_shipped_table_reproduces_the_measured_products_of_h100():
    with (SHARED / "kernels_gemm.csv").open(newline="") as file:
        rows = [r for r in csv.DictReader(file) if r["gpu"] == "H100-SXM5-80GB" and r["dtype"] == "bf16"]
    m, n, k, time = (np.array([float(row[key]) for row in rows]) for key in ("m", "n", "k", "time_us"))
    part, found = accelerator("h100-sxm"), profile("h100-sxm")
    predicted = matmul_time(
        m,
        n,
        k,
        peak=part.peak["bf16"],
        efficiency=found.gemm["bf16"].at(m, n, k),
        memory_bandwidth=part.memory_bandwidth * found.memory_efficiency,
        overhead=found.kernel_overhead,
    )
    error = np.abs(predicted / time * 1e6 - 1)
    assert np.median(error) < 0.04
    assert np.quantile(error, 0.9) < 0.11


@pytest.mark.parametrize(("name", "tflops"), [("a100-sxm-80gb", 167), ("h100-sxm", 567), ("b200-sxm", 1073)])
def test_causal_attention_reaches_the_measured_rate_at_long_sequences(name, tflops):
    # Medians of the measured kernels over 4k and more, head size 128, counted as they compute.
    part, found = accelerator(name), profile(name)
    share = found.attention["flash"].at(128, np.array([4096, 8192, 16384]), *USUAL)
    assert part.peak["bf16"] * np.median(share) / 1e12 == pytest.approx(tflops, rel=0.1)


def test_torch_dispatches_to_a_slower_attention_on_hopper_only():
    hopper, ampere = profile("h100-sxm"), profile("a100-sxm-80gb")
    assert hopper.attention["sdpa"].at(128, 8192, *USUAL) < 0.65 * hopper.attention["flash"].at(128, 8192, *USUAL)
    assert ampere.attention["sdpa"].at(128, 8192, *USUAL) == ampere.attention["flash"].at(128, 8192, *USUAL)


def test_h100_runs_gpt_sized_attention_of_a_layer_in_about_a_millisecond():
    part, found = accelerator("h100-sxm"), profile("h100-sxm")
    flops = attention_flops(2, 8192, 32, 128, 128)
    time = flops / (part.peak["bf16"] * found.attention["flash"].at(128, 8192, *USUAL)) + found.attention_overhead
    assert time == pytest.approx(1.9e-3, rel=0.15)


def test_part_without_measurements_says_whose_stand_in():
    assert any("measured on a100-sxm-80gb" in note for note in profile("a100-sxm-40gb").notes)
    assert any("typical of cdna3" in note for note in profile("mi300x").notes)
    assert not any("none measured" in note for note in profile("h100-sxm").notes)


def test_part_of_the_users_own_takes_the_kernels_of_its_architecture():
    own = replace(accelerator("h100-sxm"), name="h100-at-500-watts")
    assert profile(own, "torchtitan").gemm["bf16"] is profile("h100-sxm").gemm["bf16"]
    strange = replace(own, name="strange", architecture="unheard-of")
    assert any("typical of other" in note for note in profile(strange).notes)


def test_unknown_names_are_refused_with_the_nearest():
    with pytest.raises(SpecError, match="h100-sxm"):
        profile("h100-sxmm")
    with pytest.raises(SpecError, match="megatron-core"):
        profile("h100-sxm", "megatron-cor")


def test_what_a_campaign_taught_of_a_pair_is_used_as_it_is(taught):
    taught("h100-sxm", "megatron-core", compute_scale=1.23, launch_time=7e-6)
    found = profile("h100-sxm", "megatron-core")
    assert (found.level, found.compute_scale) == ("calibrated", 1.23)
    assert found.error == pytest.approx(np.hypot(0.04, SITE_ERROR)), "another site may differ from this one"
    assert found.launch_time == pytest.approx(7e-6)


def test_what_was_learned_of_a_stack_serves_those_that_are_like_it_with_a_wider_error(taught):
    taught("h100-sxm", "megatron-core", compute_scale=1.23)
    taught("h100-sxm", "torchtitan", compute_scale=1.5)
    found = profile("h100-sxm", "nemo")
    assert (found.name, found.level, found.compute_scale) == ("h100-sxm/nemo", "transferred", 1.23)
    assert found.error == TRANSFER_ERROR
    assert any("h100-sxm/megatron-core" in note for note in found.notes)


def test_parts_of_one_architecture_learn_of_each_other(taught):
    taught("a100-sxm-80gb", "llm-foundry", compute_scale=1.31)
    found = profile("a100-sxm-40gb", "llm-foundry")
    assert (found.accelerator, found.level, found.compute_scale) == ("a100-sxm-40gb", "transferred", 1.31)


def test_other_hardware_takes_over_what_the_software_costs_and_no_more(taught):
    taught("a100-sxm-80gb", "llm-foundry", attention_scale=1.6, launch_time=9e-6)
    found = profile("b200-sxm", "llm-foundry")
    assert (found.level, found.attention_scale, found.error) == ("transferred", 1.0, UNMEASURED_ERROR)
    assert found.launch_time == pytest.approx(9e-6)


def test_few_runs_speak_for_their_own_pair_only(taught):
    taught("h100-sxm", "megatron-core", runs=5, compute_scale=1.23)
    assert profile("h100-sxm", "megatron-core").level == "calibrated"
    assert profile("h100-sxm", "nemo").level == "datasheet"


def test_where_nothing_was_learned_the_median_campaign_tells_of_kernels_and_links(taught):
    for name, scale in (("megatron-core", 1.1), ("llm-foundry", 1.2), ("torchtitan", 1.6)):
        taught("h100-sxm", name, compute_scale=scale)
    found = profile("mi300x", "maxtext")
    assert (found.level, found.compute_scale) == ("datasheet", 1.2)


def test_scales_of_links_and_networks_slow_their_collectives(taught):
    before = profile("h100-sxm", "megatron-core").collectives
    taught("h100-sxm", "megatron-core", link_scale=2.0, network_scale=4.0)
    after = profile("h100-sxm", "megatron-core").collectives
    assert after.keys() == before.keys()
    for kind, factor in (("nvlink4", 2.0), ("infiniband", 4.0), ("infiniband-nvlink4", 4.0)):
        was, now = before[kind, "all_gather"], after[kind, "all_gather"]
        assert now.efficiency == pytest.approx(was.efficiency / factor)
        assert now.step_latency == pytest.approx(was.step_latency * factor)


def test_every_file_of_what_was_learned_is_within_physical_bounds():
    for key, one in learned().items():
        assert one.runs >= 4, key
        assert one.sources, key
        assert 0 < one.error < 2.5, key
        assert 0.8 <= one.compute_scale <= 3, key
        assert 0 <= one.overlap_penalty <= 1, key
        assert 1e-6 <= one.launch_time <= 3e-4, key


def test_every_kind_of_link_and_fabric_of_the_catalogue_has_every_collective():
    nodes = [node(name) for name in node_names()]
    used = {f"{each.link}-host" if each.wiring is Wiring.HOST else each.link for each in nodes}
    used |= {each.fabric.kind for each in nodes} | {network(name).kind for name in network_names()} | {"none"}
    assert used <= set(kinds())
    trees = {key for key in collective_fits() if key[1] in (TWO_DOMAINS, TREES)}
    assert collective_fits().keys() - trees == {(kind, name) for kind in kinds() for name in COLLECTIVES}


def test_collective_fits_are_plausible():
    for (kind, name), fit in collective_fits().items():
        in_switch = kind.endswith("-nvls") or name == TWO_DOMAINS
        assert 0.05 <= fit.efficiency <= (1.1 if in_switch else 1.0)
        assert 0 <= fit.low_latency_share <= fit.efficiency
        assert 0 <= fit.step_latency < 2e-4


def test_inherited_fit_names_its_origin():
    assert collective_fits()["nvlink5", "all_to_all"].source.startswith("as nvlink4 all_to_all: ")
    assert collective_fits()["infiniband", "reduce_scatter"].source.startswith("as infiniband all_gather: ")


def test_sockets_reach_a_few_gigabytes_per_second_whatever_the_network():
    reached = {}
    for name in ("tcp-10", "tcp-100"):
        fabric = network(name)
        fit = collective_fits(fabric)["ethernet", "all_reduce"]
        reached[name] = fit.efficiency * fabric.node_bandwidth
    assert 0.7 * 1.25e9 < reached["tcp-10"] < 1.25e9
    assert 2.5e9 < reached["tcp-100"] < 5e9


@pytest.mark.parametrize("name", VOCABULARY)
def test_every_stack_of_the_measured_runs_is_known(name):
    found = stack(name)
    assert found.name == name
    assert set(found.shardings) <= {kind.name.lower() for kind in Sharding}
    assert set(found.schedules) <= {kind.name.lower() for kind in Schedule}
    assert set(found.context_kinds) <= {kind.name.lower() for kind in ContextKind}


def test_stack_inherits_what_it_does_not_say():
    assert stack("mlperf-nemo").gradient_bytes == stack("megatron-core").gradient_bytes == 4.0
    assert ancestry("mlperf-nemo")[-1] == "pytorch"


@pytest.mark.parametrize(
    ("name", "plain", "zero1_on_8"),
    [("megatron-core", 18, 6 + 12 / 8), ("deepspeed", 16, 4 + 12 / 8), ("pytorch", 16, 8 + 8 / 8)],
)
def test_mixed_precision_adam_takes_the_published_bytes_per_parameter(name, plain, zero1_on_8):
    found = stack(name)
    conventions = found.weight_bytes, found.gradient_bytes, found.master_bytes, state_bytes("adamw", "mixed")
    assert mixed_precision_bytes(*conventions) == plain
    assert mixed_precision_bytes(*conventions, group=8) == zero1_on_8


def test_alias_and_spelling_of_a_stack_do_not_matter():
    assert stack("Megatron").name == "megatron-core"
    assert stack("accelerate").name == "hf-fsdp"
    assert "pytorch" in stack_names()


def test_conventions_of_the_stack_reach_its_profile(taught):
    assert profile("a100-sxm-40gb", "llm-foundry").fixed_time == pytest.approx(0.038)
    assert profile("a100-sxm-40gb", "megatron-core").fixed_time == pytest.approx(0.005)


def test_documentation_shows_the_errors_that_the_kernel_files_state():
    page = (Path(__file__).parents[2] / "docs" / "efficiencies.md").read_text()
    for name, data in kernel_files().items():
        table = data["gemm"]["bf16"]
        error = table["held_out_error"]["tiled" if "tiles" in table else "table"]
        assert f"| {name} | {100 * error['median']:.1f} / {100 * error['p90']:.0f} % |" in page


def test_profile_of_the_documentation_can_be_read(tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "efficiencies.md").read_text()
    (tmp_path / "p.json").write_text(page.split("```json\n")[1].split("```")[0])
    assert read_profile(tmp_path / "p.json").name == "h100-sxm/megatron-core"
