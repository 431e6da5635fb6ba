"""A table of runs scored: rows, summaries, order of plans."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from planner.validate.plan_order import kendall, spearman
from planner.validate.report import runs_report


@pytest.fixture
def report(table):
    return lambda *rows: runs_report(table(*rows))


def test_every_row_of_the_table_has_one_in_order_measured_or_not(report):
    rows = report({"id": "a"}, {"id": "b", "step_time_s": "", "peak_mem_gib": ""}, {"id": "c", "layers": ""}).rows
    assert [row.run.id for row in rows] == ["a", "b", "c"]
    measured, blank, skipped = (row.as_dict() for row in rows)
    assert measured["measured_step_time_s"] == 3.5
    assert blank["measured_step_time_s"] is None
    assert blank["predicted_step_time_s"] == measured["predicted_step_time_s"] > 0
    assert blank["predicted_peak_memory_gib"] == measured["predicted_peak_memory_gib"] > 0
    assert skipped["predicted_step_time_s"] is skipped["interval_s"] is None
    assert "layers" in skipped["skipped"]


def test_intervals_hold_the_prediction(report):
    row = report({}).rows[0].as_dict()
    for name, value in (("interval_s", "predicted_step_time_s"), ("memory_interval_gib", "predicted_peak_memory_gib")):
        low, high = row[name]
        assert low < row[value] < high


def test_a_row_that_measured_what_is_predicted_has_no_error(report):
    made = report({}).rows[0].made
    found = report({"step_time_s": made.step_time}, {"step_time_s": 2 * made.step_time}).scores()
    assert found.time.n == 2
    assert found.time.maximum == pytest.approx(0.5)
    assert found.time.bias == pytest.approx(-0.25)
    assert found.time_coverage == 0.5


def test_runs_out_of_memory_count_as_outcomes_and_not_as_errors(report):
    found = report({"micro_batch": "64", "grad_accum": "1", "global_batch": "256", "oom": "true"}, {})
    assert found.scores().time.n == 1
    assert found.outcomes() == {
        "ran": {"fits": 1, "tight": 0, "does_not_fit": 0},
        "out_of_memory": {"fits": 0, "tight": 0, "does_not_fit": 1},
    }


def test_the_summary_divides_rows_by_source_accelerator_and_stack(report):
    summary = report({"source_id": "x"}, {"source_id": "y", "gpu": "A100-SXM4-80GB", "intra": "nvlink3"}).as_dict()[
        "summary"
    ]
    assert summary["by_source_id"].keys() == {"x", "y"}
    assert summary["by_accelerator"].keys() == {"h100-sxm", "a100-sxm-80gb"}
    assert summary["by_stack"]["megatron-core"]["step_time"]["n"] == summary["overall"]["step_time"]["n"] == 2
    figures = {"n", "median", "mean", "p90", "max", "bias", "coverage"}
    assert summary["overall"]["memory"].keys() == summary["overall"]["step_time"].keys() == figures


def test_regret_is_what_trusting_the_prediction_costs(report):
    """Two plans of one job; the one that is predicted faster was measured slower by a half."""
    plans = {"tp 2": {"tp": "2", "dp": "4"}, "tp 8": {"tp": "8", "dp": "1", "grad_accum": "64"}}
    alone = [report(plan).rows[0].made.step_time for plan in plans.values()]
    faster = int(np.argmin(alone))
    seconds = [4.0, 4.0]
    seconds[faster] = 6.0
    rows = [
        {"id": name, "step_time_s": str(second), **plan}
        for (name, plan), second in zip(plans.items(), seconds, strict=True)
    ]
    (group,) = report(*rows, {"id": "other job", "global_batch": "128", "grad_accum": "32"}).groups
    assert group.n == 2
    assert group.regret == pytest.approx(0.5)
    assert (group.chosen_id, group.best_measured_id) == (list(plans)[faster], list(plans)[1 - faster])
    assert (group.spearman, group.kendall) == (-1.0, -1.0)


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=2, max_size=30))
def test_rank_correlations_are_those_of_scipy(pairs):
    one, other = (np.array(column, dtype=float) for column in zip(*pairs, strict=True))
    if len(set(one)) == 1 or len(set(other)) == 1:
        assert spearman(one, other) is kendall(one, other) is None
    else:
        assert spearman(one, other) == pytest.approx(stats.spearmanr(one, other).statistic, abs=2e-6)
        assert kendall(one, other) == pytest.approx(stats.kendalltau(one, other).statistic, abs=2e-6)
