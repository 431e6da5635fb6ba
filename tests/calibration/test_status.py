"""`planner calibrate status`: what is measured, what is not, how old, and what comes next."""

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from calibration.cli import calibrate
from calibration.command import Fit
from calibration.measurement_plan import usual_plan
from calibration.measurements import Entry, Machine, Measured, Measurement
from calibration.record import Record
from calibration.status import status_of
from planner.catalogue.profiles import profile
from planner.errors import FileFormatError
from planner.spec.profile_file import write_profile

GPU = Machine(
    device="cuda", name="NVIDIA H100 80GB HBM3", host="here", cores=96, processes=1, nodes=1, threads=8, memory=80e9,
    cache=5e7, versions={"torch": "2.13.0"},
)  # fmt: skip
TINY = Measurement("tiny_layer")


@pytest.fixture
def path(tmp_path):
    """A profile in which bandwidth and dispatch were measured, and one measurement failed."""
    record = Record(tmp_path / "x.json", GPU)
    record.entries = [
        Entry(Measurement("copy", {"bytes": 2**30}), Measured(0.8e-3, 0.01, 20), "2026-11-01T12:00:00+00:00"),
        Entry(TINY, Measured(4e-4, 0.1, 50), "2026-11-02T12:00:00+00:00"),
        Entry(Measurement("allocator"), None, "2026-11-02T12:00:00+00:00", "out of memory"),
    ]
    Fit("pytorch")(record)
    return record.path


def run(*arguments):
    return CliRunner().invoke(calibrate, ["status", *map(str, arguments)])


def test_measured_figures_are_told_from_those_of_elsewhere(path):
    found = status_of(path)
    origin = {one.name: one.origin for one in found.parameters}
    assert origin["memory_efficiency"] == origin["launch_time"] == "measured"
    assert origin["gemm"] == origin["compute_scale"] == profile("h100-sxm", "pytorch").level
    assert next(one for one in found.parameters if one.name == "launch_time").last == "2026-11-02"


def test_the_age_is_that_of_the_last_measurement(path):
    found = status_of(path)
    assert found.dates == ("2026-11-01T12:00:00+00:00", "2026-11-02T12:00:00+00:00")
    assert found.age_days > 20


def test_what_comes_next_was_not_done_before(path):
    done = Record.read(path).keys
    following = status_of(path).next
    assert len(following) == 5
    assert not {one.key for one in following} & done
    assert following[0] == next(one for one in usual_plan(GPU) if one.key not in done)


def test_a_decision_changes_what_comes_next(path):
    printed = run("--profile", path, "--model", "llama-3.1-8b", "--cluster", "8xh100-sxm", "--json")
    assert printed.exit_code == 0, printed.output
    assert json.loads(printed.stdout)["next"][0] != json.loads(run("--profile", path, "--json").stdout)["next"][0]


def test_status_as_json(path):
    found = json.loads(run("--profile", path, "--json").stdout)
    assert found["schema_version"] == 1
    assert found["profile"] == "h100-sxm/pytorch"
    assert found["measurements"] == 3
    assert found["failed"] == {"allocator": "out of memory"}
    assert {one["origin"] for one in found["parameters"]} <= {"measured", "transferred", "calibrated", "datasheet"}


def test_status_for_people_names_the_next_measurement(path):
    text = run("--profile", path).stdout
    assert "h100-sxm/pytorch" in text
    assert "measured 2026-11-01 to 2026-11-02" in text
    assert "next: gemm" in text


def test_a_profile_without_measurements_is_all_of_elsewhere(tmp_path):
    own = profile("h100-sxm", "megatron-core")
    write_profile(replace(own, level="calibrated"), tmp_path / "own.json")
    found = status_of(tmp_path / "own.json")
    assert {one.origin for one in found.parameters} == {"calibrated"}
    assert found.age_days is None
    assert "nothing measured here" in run("--profile", tmp_path / "own.json").stdout


def test_measurements_too_few_for_a_profile_are_an_error_of_one_line(tmp_path):
    cpu = replace(GPU, device="cpu", name="Some CPU")
    Record(tmp_path / "x.json", cpu).add(TINY, Measured(1e-4))
    with pytest.raises(FileFormatError, match="too few measurements"):
        status_of(tmp_path / "x.json")
