"""Tables of timed kernels, predicted from the stated shape."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from planner.errors import FileFormatError
from planner.validate.kernels_columns import SCHEMAS, read_kernels
from planner.validate.kernels_report import kernels_report

TABLES = {
    "gemm": ("gpu,library,dtype,m,n,k,time_us", "H100-SXM5-80GB,vllm,bf16,4096,4096,4096,166"),
    "attention": (
        "gpu,library,kernel,batch,seq_len,heads,kv_heads,head_dim,causal,direction,time_us",
        "H100-SXM5-80GB,vllm,vllm_flash_attn_fa3,4,4096,32,8,128,True,forward,1011",
    ),
    "moe": (
        "gpu,library,dtype,tokens,hidden,intermediate,topk,experts,ep,time_us",
        "H100-SXM5-80GB,trtllm,bf16,4096,4096,14336,2,8,1,4000",
    ),
    "nccl": (
        "gpu,nccl,collective,n_ranks,elements,dtype,time_us",
        "H100-SXM5-80GB,2.29,all_reduce,8,268435456,fp16,2100",
    ),
}  # fmt: skip


SAMPLES = Path(__file__).parents[1] / "data" / "kernels"
"""A random part of the tables that the catalogue's kernels were fitted to: ai-dynamo/aiconfigurator, Apache-2.0, commit
095f58a."""


@pytest.fixture
def write(tmp_path):
    """A table of a kind from rows of text, under the usual header or another."""

    def written(kind, *rows, header=""):
        path = tmp_path / f"{kind}.csv"
        path.write_text("\n".join((header or TABLES[kind][0], *rows)) + "\n", encoding="utf-8")
        return path

    return written


def times(report):
    return [row["predicted_time_s"] for row in report.as_dict()["rows"]]


@pytest.mark.parametrize("kind", SCHEMAS)
def test_a_large_kernel_of_each_kind_is_predicted_within_a_third(kind, write):
    report = kernels_report(kind, write(kind, TABLES[kind][1]))
    assert report.score().n == 1
    assert report.score().median < 0.35


@pytest.mark.parametrize("kind", SCHEMAS)
def test_a_prediction_does_not_look_at_the_time(kind, write):
    row = TABLES[kind][1]
    blank = row.rpartition(",")[0]
    with_times = kernels_report(kind, write(kind, row, f"{blank},", f"{blank},1"))
    assert len(set(times(with_times))) == 1
    header = TABLES[kind][0].removesuffix(",time_us")
    assert times(kernels_report(kind, write(kind, blank, header=header))) == times(with_times)[:1]


@pytest.mark.parametrize("kind", SCHEMAS)
def test_rows_come_out_as_they_went_in_with_what_identifies_them(kind, write):
    header, row = TABLES[kind]
    shown = kernels_report(kind, write(kind, row, row.replace("H100-SXM5-80GB", "L40S"))).as_dict()["rows"]
    assert [each["gpu"] for each in shown] == ["H100-SXM5-80GB", "L40S"]
    assert set(header.split(",")) - {"time_us"} < set(shown[0])
    assert shown[0]["measured_time_s"] == pytest.approx(float(row.rpartition(",")[2]) * 1e-6)


def test_scores_are_given_by_accelerator_and_precision(write):
    rows = (
        "H100-SXM5-80GB,,bf16,4096,4096,4096,166",
        "H100-SXM5-80GB,,fp8,4096,4096,4096,90",
        "L40S,,bf16,512,512,512,",
    )
    summary = kernels_report("gemm", write("gemm", *rows)).as_dict()["summary"]
    assert (summary["rows"], summary["predicted"], summary["overall"]["n"]) == (3, 3, 2)
    assert {name: one["n"] for name, one in summary["by_accelerator"].items()} == {"H100-SXM5-80GB": 2, "L40S": 0}
    assert {name: one["n"] for name, one in summary["by_precision"].items()} == {"bf16": 1, "fp8": 1}
    assert summary["by_accelerator"]["L40S"]["median"] is None


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("A100-SXM4-80GB,,fp8,4096,4096,4096,", "no fp8 matrix units"),
        ("Cray-1,,bf16,4096,4096,4096,", "cray"),
        ("H100,,bf17,4096,4096,4096,", "bf17"),
        ("H100,,bf16,4096,,4096,", "n is not stated"),
        ("H100,,bf16,4096,1e30,4096,", "n is larger than any memory"),
    ],
)
def test_a_row_that_cannot_be_predicted_says_why_and_spoils_no_other(row, reason, write):
    shown = kernels_report("gemm", write("gemm", row, TABLES["gemm"][1])).as_dict()["rows"]
    assert shown[0]["predicted_time_s"] is None
    assert shown[0]["level"] is None
    assert reason in shown[0]["reason"].lower()
    assert shown[1]["predicted_time_s"] > 0
    assert shown[1]["reason"] is None


def test_the_level_says_whether_the_part_or_a_similar_one_was_measured(write):
    rows = [f"{gpu},,bf16,4096,4096,4096," for gpu in ("H100", "H800", "MI300X")]
    shown = kernels_report("gemm", write("gemm", *rows)).as_dict()["rows"]
    assert [row["level"] for row in shown] == ["calibrated", "transferred", "datasheet"]


@pytest.mark.parametrize(
    ("kind", "broken"),
    [
        ("gemm", "H100,,bf16,many,4096,4096,1"),
        ("gemm", "H100,,bf16,4096,4096,4096,soon"),
        ("attention", "H100,,,1,512.5,8,8,128,True,forward,1"),
        ("moe", "H100,,bf16,-4,4096,1024,2,8,1,1"),
        ("nccl", "H100,2.29,all_reduce,8"),
    ],
)
def test_a_malformed_cell_is_named_with_its_line(kind, broken, write):
    with pytest.raises(FileFormatError, match=r"line 3"):
        read_kernels(kind, write(kind, TABLES[kind][1], broken))


def test_a_table_that_lacks_a_dimension_is_refused(write):
    with pytest.raises(FileFormatError, match="lacks the columns k of a table of gemm kernels"):
        read_kernels("gemm", write("gemm", "H100,,bf16,1,1", header="gpu,library,dtype,m,n"))


def test_sixty_thousand_rows_are_predicted_as_columns(write):
    lengths = np.random.default_rng(0).integers(512, 16384, 60_000)
    rows = [f"H100-SXM5-80GB,vllm,,1,{length},32,8,128,True,forward,100" for length in lengths]
    report = kernels_report("attention", write("attention", *rows))
    assert report.score().n == 60_000
    assert (np.diff(report.made.time[np.argsort(lengths)]) >= 0).mean() > 0.99


@pytest.mark.parametrize(
    ("kind", "median", "p90"), [("gemm", 0.04, 0.12), ("attention", 0.03, 0.08), ("moe", 0.05, 0.2)]
)
def test_shipped_tables_give_a_sample_of_what_they_were_fitted_to(kind, median, p90, tmp_path):
    path = tmp_path / f"{kind}.csv"
    path.write_bytes(gzip.decompress((SAMPLES / f"{kind}.csv.gz").read_bytes()))
    report = kernels_report(kind, path)
    assert report.score().n == len(report.rows) >= 900
    assert report.score().median < median
    assert report.score().p90 < p90
    assert abs(report.score().bias) < 0.02
    assert set(report.made.level) == {"calibrated"}


def test_a_kernel_that_was_not_timed_on_the_part_stands_on_another(write):
    row = TABLES["attention"][1]
    rows = (row, row.replace("vllm_flash_attn_fa3", "my_kernel"), row.replace("forward", "backward"))
    report = kernels_report("attention", write("attention", *rows))
    assert report.made.level.tolist() == ["calibrated", "transferred", "transferred"]
    assert report.made.time[1] == report.made.time[0]
    assert report.made.time[2] > 2 * report.made.time[0]


def test_experts_known_to_have_no_gate_do_two_thirds_of_the_work(write):
    rows = [f"H100,none,bf16,65536,2048,{width},22,512,1," for width in (5120, 5121)]
    gated, without = (kernels_report("moe", write("moe", row)).made.time[0] for row in rows[::-1])
    assert without / gated == pytest.approx(2 / 3, rel=0.05)


def test_keys_shared_by_queries_make_attention_no_slower(write):
    rows = [f"H100-SXM5-80GB,vllm,vllm_flash_attn_fa3,4,1024,32,{keys},128,True,forward," for keys in (1, 8, 32)]
    time = kernels_report("attention", write("attention", *rows)).made.time
    assert time[0] < time[1] < time[2]
