"""Kernel tables from a small synthetic measurement whose truth is known."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from calibration.grids import fit_table
from calibration.kernel_tables import write_kernel_tables
from calibration.tile_fits import fit_tiles
from planner.cost.flops import attention_flops, matmul_flops
from planner.estimate.kernels import tiled_efficiency
from planner.spec.json_files import table_from_json
from planner.spec.profile import MatmulTiles
from planner.tables import Table

SHIPPED = Path(__file__).parents[2] / "planner" / "catalogue" / "kernels"
FULL_TABLES = Path(__file__).parents[2] / "../shared/data"
PEAK = 300e12
BANDWIDTH = 2e12
OVERHEAD = 3e-6
GROUPED_SHARE = 0.8


def gemm_share(m, n, k):
    return 0.85 * m / (m + 150) * n / (n + 100) * k / (k + 300)


def attention_share(head_dim, seq_len):
    return 0.6 * np.minimum(head_dim / 128, 1) ** 0.2 * seq_len / (seq_len + 900)


def write(path, rows):
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, fieldnames=list(rows[0]))
        table.writeheader()
        table.writerows(rows)


def gemm_rows(random):
    for _ in range(700):
        m, n, k = (int(2 ** random.uniform(low, high)) for low, high in ((8, 15), (9, 16), (9, 16)))
        time = matmul_flops(m, n, k) / (PEAK * gemm_share(m, n, k)) + OVERHEAD
        time *= np.exp(random.normal(0, 0.01)) * (2.0 if random.random() < 0.02 else 1.0)
        yield {
            "gpu": "A100-SXM4-80GB",
            "library": "lib 1",
            "dtype": "bf16",
            "m": m,
            "n": n,
            "k": k,
            "time_us": time * 1e6,
        }


def attention_rows(random):
    for kernel, slowness in (("tuned", 1.0), ("plain", 1.7)):
        for head_dim in (64, 128):
            for seq_len in (512, 1024, 2048, 4096, 8192, 16384):
                for batch in (1, 4, 16):
                    flops = attention_flops(batch, seq_len, 64, head_dim, head_dim)
                    time = slowness * flops / (PEAK * attention_share(head_dim, seq_len)) + 1e-5
                    yield {
                        "gpu": "A100-SXM4-80GB", "library": "lib 1", "kernel": kernel, "batch": batch,
                        "seq_len": seq_len, "heads": 64, "kv_heads": 8, "head_dim": head_dim, "causal": "True",
                        "direction": "forward", "time_us": time * 1e6,
                    }  # fmt: skip


def moe_rows():
    for library, share in (("grouped 1", GROUPED_SHARE), ("loop 1", 0.2)):
        for tokens in (256, 1024, 4096, 16384):
            for width in (1024, 2048, 8192):
                rows, hidden, experts = tokens * 2, 4096, 8
                time = 0.0
                for n, k in ((2 * width, hidden), (hidden, width)):
                    moved = 2 * (rows * k + experts * k * n + rows * n)
                    compute = matmul_flops(rows, n, k) / (PEAK * gemm_share(rows, n, k))
                    time += max(compute, moved / (0.82 * BANDWIDTH)) / share + OVERHEAD
                yield {
                    "gpu": "A100-SXM4-80GB", "library": library, "dtype": "bf16", "tokens": tokens, "hidden": hidden,
                    "intermediate": width, "topk": 2, "experts": experts, "ep": 1, "time_us": time * 1e6,
                }  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Tables fitted to the synthetic measurement, and the folder that they were written to."""
    source, target = tmp_path_factory.mktemp("csv"), tmp_path_factory.mktemp("json")
    random = np.random.default_rng(3)
    write(source / "kernels_gemm.csv", list(gemm_rows(random)))
    write(source / "kernels_attention.csv", list(attention_rows(random)))
    write(source / "kernels_moe.csv", list(moe_rows()))
    part = {"name": "A100-SXM4-80GB", "mem_bw_gbs": BANDWIDTH / 1e9, "sm_count": 108}
    write(source / "accelerators.csv", [part | {"bf16_tflops": PEAK / 1e12, "fp8_tflops": ""}])
    paths = write_kernel_tables(source, target, made="2026-01-02")
    return {path.stem: json.loads(path.read_text()) for path in paths}, target


@pytest.fixture(scope="module")
def tables(made):
    return made[0]["a100-sxm-80gb"]


def test_one_file_per_measured_part_and_one_of_typical_shapes(made):
    files, folder = made
    assert set(files) == {"a100-sxm-80gb", "typical"}
    assert sorted(path.name for path in folder.iterdir()) == ["a100-sxm-80gb.json", "typical.json"]


def test_file_says_source_library_date_and_number_of_points(tables):
    assert tables["date"] == "2026-01-02"
    assert "commit" in tables["source"]
    assert (tables["gemm"]["bf16"]["library"], tables["gemm"]["bf16"]["points"]) == ("lib 1", 700)
    assert "tiles" not in tables["gemm"]["bf16"]  # the truth has none


def test_fixed_part_of_the_time_is_found(tables):
    assert tables["kernel_overhead_s"] == pytest.approx(OVERHEAD, abs=1e-6)


def test_true_shares_are_found_in_spite_of_noise_and_outliers(tables):
    table = table_from_json(tables["gemm"]["bf16"])
    m, n, k = (axis.ravel() for axis in np.meshgrid([700, 3000, 9000], [900, 5000, 20000], [900, 5000, 20000]))
    assert np.median(np.abs(table.at(m, n, k) / gemm_share(m, n, k) - 1)) < 0.02
    assert table.at(m, n, k) == pytest.approx(gemm_share(m, n, k), rel=0.1)


def test_held_out_error_of_the_table_is_least(tables):
    error = tables["gemm"]["bf16"]["held_out_error"]
    assert 100 < error["points"] < 180
    assert error["table"]["median"] < 0.02
    assert error["table"]["median"] < error["parametric"]["median"] < error["constant"]["median"]


def test_best_attention_kernel_is_chosen_and_its_shares_found(tables):
    assert tables["attention"]["best"] == "tuned"
    table = table_from_json(tables["attention"]["kernels"]["tuned"])
    for head_dim, seq_len in ((64, 1024), (128, 4096), (128, 16384)):
        assert table.at(head_dim, seq_len, 256, 8) == pytest.approx(attention_share(head_dim, seq_len), rel=0.07)


def test_grouped_share_of_the_tuned_library_is_found(tables):
    training = tables["grouped_matmul"]["training"]
    assert training["library"] == "grouped 1"
    assert table_from_json(training).at(1024, 2048) == pytest.approx(GROUPED_SHARE, rel=0.05)
    table = table_from_json(tables["grouped_matmul"]["kernels"]["loop 1 bf16"])
    assert table.at(1024, 2048, 8, 1) == pytest.approx(0.2, rel=0.05)


def test_typical_shapes_reach_one_and_fall_for_small_products(made):
    shape = table_from_json(made[0]["typical"]["gemm_shape"])
    assert shape.at(108, 32768, 65536, 65536) == pytest.approx(1.0, abs=0.01)
    assert shape.at(108, 256, 512, 512) < 0.5


def test_fit_goes_through_points_that_a_table_can_hold():
    axes = (np.array([1.0, 10.0, 100.0]), np.array([1.0, 100.0]))
    truth = Table(axes, np.array([[0.2, 0.4], [0.3, 0.5], [0.6, 0.9]]))
    x, y = (grid.ravel() for grid in np.meshgrid([1.0, 3.0, 10.0, 50.0, 100.0], [1.0, 7.0, 100.0]))
    found = fit_table(axes, [x, y], truth.at(x, y), smoothness=1e-5)
    assert found.values == pytest.approx(truth.values, rel=1e-3)


def test_fit_does_not_run_away_where_there_are_no_points():
    axes = (np.array([1.0, 10.0, 100.0, 1000.0]),)
    x = np.array([1.0, 2.0, 5.0, 9.0])
    values = fit_table(axes, [x], 0.1 * x).values
    assert values.min() >= 0.1
    assert values.max() <= 0.9


def test_tiles_are_found_where_products_fill_the_part_in_waves():
    random = np.random.default_rng(5)
    m, n, k = (2.0 ** random.uniform(low, 14, 600) for low in (8, 9, 9))
    truth = MatmulTiles(((128.0, 256.0, 0.9), (256.0, 128.0, 0.9)), half_rate_depth=200.0, wave_exponent=1.0)
    found = fit_tiles(tiled_efficiency(truth, m, n, k, 108), {"m": m, "n": n, "k": k}, 108)
    error = tiled_efficiency(found, m, n, k, 108) / tiled_efficiency(truth, m, n, k, 108) - 1
    assert np.median(np.abs(error)) < 0.01
    assert found.wave_exponent > 0.9


@pytest.mark.parametrize(
    ("find", "median", "p90"),
    [
        (lambda data: data["gemm"], 0.04, 0.12),
        (lambda data: data["attention"]["kernels"], 0.06, 0.15),
        (lambda data: data.get("grouped_matmul", {"kernels": {}})["kernels"], 0.10, 0.30),
    ],
    ids=["gemm", "attention", "moe"],
)
def test_errors_of_held_out_shapes_stay_under_their_bars(find, median, p90):
    """Over all parts and kernels, each with the weight of its points."""
    entries = [
        entry for path in SHIPPED.glob("*.json") if path.stem != "typical" for entry in find(read(path)).values()
    ]
    used = [entry["held_out_error"]["tiled" if "tiles" in entry else "table"] for entry in entries]
    weights = [entry["points"] for entry in entries]
    assert np.average([error["median"] for error in used], weights=weights) < median
    assert np.average([error["p90"] for error in used], weights=weights) < p90


@pytest.mark.slow
@pytest.mark.skipif(not FULL_TABLES.exists(), reason="needs the measured kernel times")
def test_shipped_files_are_what_the_command_makes(tmp_path):
    for path in write_kernel_tables(FULL_TABLES, tmp_path, made=read(SHIPPED / "l40s.json")["date"]):
        assert_alike(read(path), read(SHIPPED / path.name))


def read(path):
    return json.loads(path.read_text())


def assert_alike(made, shipped):
    """Equal but for the last digits of numbers, which depend on the linear algebra of a machine."""
    if isinstance(made, dict):
        assert set(made) == set(shipped)
        for key, value in made.items():
            assert_alike(value, shipped[key])
    elif isinstance(made, list):
        assert np.array(made) == pytest.approx(np.array(shipped), rel=0.02)
    else:
        assert made == (pytest.approx(shipped, rel=0.02, abs=1e-3) if isinstance(made, float) else shipped)
