"""The catalogue's collectives: made by the script from the tables, and what they reach on sources left out."""

import gzip
import tomllib
from pathlib import Path

import numpy as np
import pytest

from calibration.collectives import PRIORS, Catalogue, entries, left_out, report
from calibration.collectives_fit import fitted, predictor, read_measured
from planner.catalogue.collective_errors import RANGES
from planner.catalogue.names import FOLDER
from planner.spec.toml_file import read_toml

TABLES = Path(__file__).parents[1] / "data" / "collectives.csv.gz"


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    path = tmp_path_factory.mktemp("tables") / "collectives.csv"
    path.write_bytes(gzip.decompress(TABLES.read_bytes()))
    return read_measured(path)


@pytest.fixture(scope="module")
def catalogue(measured):
    return Catalogue(measured, np.ones(len(measured.times), dtype=bool), read_toml(PRIORS))


@pytest.fixture(scope="module")
def unseen(measured):
    return left_out(measured)


def medians(measured, times, rows=True):
    far = np.abs(times / measured.times - 1)
    size = measured.calls.size
    return [float(np.median(far[(size >= low) & (size < high) & rows])) for _, low, high in RANGES]


def numbers(tree):
    for key, value in tree.items():
        yield from (
            ((f"{key}.{name}", one) for name, one in numbers(value)) if isinstance(value, dict) else [(key, value)]
        )


def test_the_catalogue_is_what_the_script_makes_of_the_tables(catalogue):
    made = dict(numbers(tomllib.loads("\n".join(entries(catalogue)))))
    kept = dict(numbers(read_toml(FOLDER / "collectives.toml")))
    assert made.keys() == kept.keys()
    for name, value in kept.items():
        assert made[name] == (pytest.approx(value, rel=0.05) if isinstance(value, float) else value), name


def test_a_source_left_out_is_predicted_within_the_bounds_of_each_range_of_sizes(measured, unseen):
    """From starting values that were chosen with these tables in sight; the strict figures are those of plain ones."""
    below, middle, above = medians(measured, unseen)
    assert below < 0.31
    assert middle < 0.24
    assert above < 0.10


def test_sources_that_share_their_machines_with_others_are_predicted_closer(measured, unseen):
    """Two systems with Slingshot are alone with theirs; everything else has relatives."""
    alone = np.isin(measured.sites, [site for site in set(measured.sites) if "alcf" in site or "alps" in site])
    below, middle, above = medians(measured, unseen, ~alone)
    assert below < 0.28
    assert middle < 0.20
    assert above < 0.07


def test_starting_values_that_know_nothing_of_the_tables_do_worse_but_not_by_much(measured):
    plain = medians(measured, left_out(measured, plain=True))
    assert plain[0] < 0.40
    assert plain[1] < 0.40
    assert plain[2] < 0.20


def test_a_source_left_out_does_not_enter_its_own_prediction(measured):
    site = "github.com/microsoft/superbenchmark"
    own = measured.sites == site
    rows = np.flatnonzero(own)
    others = Catalogue(measured, ~own, read_toml(PRIORS))
    before = others.times(rows)
    moved = type(measured)(**(vars(measured) | {"times": np.where(own, 10 * measured.times, measured.times)}))
    assert Catalogue(moved, ~own, read_toml(PRIORS)).times(rows) == pytest.approx(before)


def test_a_fit_without_rows_stays_where_it_starts(measured, catalogue):
    start = catalogue.fit("roce-xgmi", "all_reduce")
    times = predictor(measured, catalogue.network("roce-xgmi", "all_reduce"), "all_reduce")
    assert fitted(start, measured, np.array([], dtype=int), times) is start


def test_the_report_names_every_class_with_its_calls_and_sources(catalogue):
    lines = list(report(catalogue))
    assert lines[2].startswith(f"| all | {len(catalogue.measured.times)} | ")
    classes = {line.split(" | ")[0].strip("| ") for line in lines[3:]}
    assert {"nvlink3 all_reduce", "slingshot-nvlink4 all_reduce", "tcpxo all_gather"} <= classes
