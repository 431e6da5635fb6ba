import json
from dataclasses import fields, replace

import numpy as np
import pytest

from planner.errors import FileFormatError
from planner.spec.json_files import write_json
from planner.spec.profile import CollectiveFit, MatmulTiles, Profile
from planner.spec.profile_file import read_profile, write_profile
from planner.tables import Table

GEMM = Table.of([[256, 8192], [512, 8192], [512, 8192]], [0.2, 0.5, 0.4, 0.7, 0.5, 0.75, 0.6, 0.8125])
ATTENTION = Table.of([[64, 128], [512, 16384]], [0.1, 0.45, 0.15, 0.62])
GROUPED = Table.of([[16, 4096], [768, 8192]], [0.9, 1.0, 0.6, 1.0])
TILES = MatmulTiles(((128.0, 256.0, 1.0), (64.0, 64.0, 0.6)), half_rate_depth=210.0, wave_exponent=0.6)
FITTED = Profile(
    accelerator="h100-sxm",
    stack="megatron-core",
    level="calibrated",
    gemm={"bf16": GEMM},
    attention={"flash": ATTENTION, "sdpa": ATTENTION},
    collectives={
        ("nvlink4", "all_reduce"): CollectiveFit(0.82, 19e-6, 1.7e-6, 3e-6, 0.46, "measured here"),
        ("infiniband", "send_recv"): CollectiveFit(0.88, 15e-6, 5e-6),
    },
    compute_scale=1.07,
    overlap_penalty=0.51,
    launch_time=7e-6,
    grouped_matmul=GROUPED,
    matmul_tiles={"bf16": TILES},
    error=0.031,
    sources=("our own cluster",),
    notes=("8 runs",),
)
TABLES = ("gemm", "attention", "grouped_matmul")


def same(one, other):
    return all(np.array_equal(a, b) for a, b in zip(one.axes, other.axes, strict=True)) and np.array_equal(
        one.values, other.values
    )


@pytest.fixture
def path(tmp_path):
    write_profile(FITTED, tmp_path / "h100-sxm" / "megatron-core.json")
    return tmp_path / "h100-sxm" / "megatron-core.json"


def edited(path, **changes):
    data = json.loads(path.read_text()) | changes
    write_json(path, {key: value for key, value in data.items() if value is not None})
    return path


def test_profile_comes_back_as_it_was_written(path):
    found = read_profile(path)
    for field in fields(Profile):
        if field.name not in TABLES:
            assert getattr(found, field.name) == getattr(FITTED, field.name)
    assert same(found.gemm["bf16"], GEMM)
    assert same(found.attention["sdpa"], ATTENTION)
    assert same(found.grouped_matmul, GROUPED)


def test_writing_what_was_read_changes_nothing(path, tmp_path):
    write_profile(read_profile(path), tmp_path / "again.json")
    assert (tmp_path / "again.json").read_text() == path.read_text()


def test_profile_without_grouped_table_comes_back_without(tmp_path):
    write_profile(replace(FITTED, grouped_matmul=None), tmp_path / "a.json")
    assert read_profile(tmp_path / "a.json").grouped_matmul is None


def test_times_carry_their_unit_in_the_file(path):
    data = json.loads(path.read_text())
    assert data["launch_time_s"] == 7e-6
    assert data["collectives"][0]["start_s"] == 19e-6


def test_failed_write_leaves_the_old_file_and_nothing_else(path):
    before = path.read_text()
    with pytest.raises(ValueError, match="JSON"):
        write_profile(replace(FITTED, error=float("nan")), path)
    assert path.read_text() == before
    assert list(path.parent.iterdir()) == [path]


def test_missing_values_have_their_defaults(path):
    found = read_profile(edited(path, launch_time_s=None, compute_scale=None, collectives=None))
    assert (found.launch_time, found.compute_scale, found.collectives) == (20e-6, 1.12, {})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schema_version": 2}, "schema_version should be 1, not 2"),
        ({"level": "guessed"}, "level should be one of calibrated"),
        ({"accelerator": None}, "accelerator should be a name"),
        ({"memory_efficiency": "much"}, "memory_efficiency: should be a number from 1e-06 to"),
        ({"memory_efficiency": 0}, "memory_efficiency: should be a number from 1e-06 to 1000"),
        ({"plan_error": 0}, "plan_error: should be a number from 1e-06 to 1000"),
        ({"fixed_time_s": 1e308}, "fixed_time_s: should be a number from 0 to 1000"),
        ({"sources": 5}, "sources should be a list, not 5"),
        ({"collectives": True}, "collectives should be a list, not True"),
        ({"launch_time_us": 6}, "unknown key launch_time_us"),
        ({"gemm": {}}, "gemm should hold at least one table"),
        ({"gemm": {"bf16": {"axes": {"m": [1, 2]}, "values": [1, 1]}}}, "gemm.bf16: is no table"),
        (
            {
                "attention": {
                    "flash": {"axes": {"head_dim": [64, 128], "seq_len": [1, 2]}, "values": [0.5, 0.5, 0.5, 1.5]}
                }
            },
            "attention.flash: shares should lie between 0 and 1",
        ),
        ({"collectives": [{"link": "nvlink4"}]}, "collectives: an entry lacks 'collective'"),
    ],
)
def test_malformed_profile_is_refused_in_one_line_that_names_the_key(path, changes, message):
    with pytest.raises(FileFormatError, match=message) as caught:
        read_profile(edited(path, **changes))
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", ["", "{", "[1, 2]", "3"])
def test_file_that_is_no_json_object_is_refused(tmp_path, content):
    (tmp_path / "p.json").write_text(content)
    with pytest.raises(FileFormatError, match="JSON"):
        read_profile(tmp_path / "p.json")


def test_missing_file_is_refused(tmp_path):
    with pytest.raises(FileFormatError, match="cannot be read"):
        read_profile(tmp_path / "absent.json")


def test_tables_of_attention_and_experts_may_have_more_axes(tmp_path):
    fine = Table.of([[64, 128], [512, 16384], [8, 512], [1, 8]], np.linspace(0.1, 0.6, 16).tolist())
    write_profile(replace(FITTED, attention={"flash": fine}, grouped_matmul=fine), tmp_path / "fine.json")
    found = read_profile(tmp_path / "fine.json")
    assert len(found.attention["flash"].axes) == len(found.grouped_matmul.axes) == 4


@pytest.mark.parametrize(
    ("tiles", "problem"),
    [
        ([], "are no tiles"),
        ({"bf16": {"tiles": [[128, 256]], "half_rate_depth": 100, "wave_exponent": 1}}, "are no tiles"),
        ({"bf16": {"tiles": [[128, 0, 1]], "half_rate_depth": 100, "wave_exponent": 1}}, "positive rows"),
        ({"bf16": {"tiles": [[128, 256, 1]], "half_rate_depth": 100, "wave_exponent": 2}}, "wave_exponent"),
    ],
)
def test_tiles_that_cannot_be_are_refused(path, tiles, problem):
    with pytest.raises(FileFormatError, match=problem):
        read_profile(edited(path, matmul_tiles=tiles))
