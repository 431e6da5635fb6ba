"""The file of a calibration: every finished measurement is in it, whatever happens to the process."""

import json
import random
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from calibration.measurements import Machine, Measured, Measurement
from calibration.record import Record
from planner.errors import FileFormatError

HERE = Machine(
    device="cpu", name="Some CPU", host="here", cores=2, processes=2, nodes=1, threads=1, memory=8e9, cache=1e6,
    versions={"torch": "2.13.0"},
)  # fmt: skip
GEMM = Measurement("gemm", {"dtype": "fp32", "m": 64, "n": 64, "k": 64})


def test_a_record_gives_back_what_was_measured(tmp_path):
    record = Record.open(tmp_path / "x.json", HERE)
    record.add(GEMM, Measured(1e-5, 0.1, 40, parts={"alone": 2e-5}))
    record.add(Measurement("context"), Measured(5e8, unit="bytes"))
    record.add(Measurement("gemm", {"dtype": "fp8"}), None, failure="no such kernel")
    found = Record.open(tmp_path / "x.json", HERE)
    assert found.entries == record.entries
    assert found.results("gemm") == [(GEMM.parameters, Measured(1e-5, 0.1, 40, parts={"alone": 2e-5}))]
    assert found.keys == {GEMM.key, "context", "gemm dtype=fp8"}


@pytest.mark.parametrize(
    "change", [{"host": "there"}, {"cores": 64}, {"processes": 4}, {"versions": {"torch": "2.11"}}]
)
def test_a_file_of_another_machine_is_refused_in_one_line(tmp_path, change):
    Record.open(tmp_path / "x.json", HERE).add(GEMM, Measured(1e-5))
    with pytest.raises(FileFormatError) as caught:
        Record.open(tmp_path / "x.json", replace(HERE, **change))
    message = str(caught.value)
    assert "\n" not in message
    assert "measured elsewhere" in message
    assert next(iter(change)) in message


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"schema_version": 1}',
        '{"schema_version": 1, "machine": {}, "measurements": []}',
        '{"schema_version": 1, "machine": 3, "measurements": []}',
    ],
)
def test_a_file_that_is_no_calibration_is_not_written_over(tmp_path, text):
    path = tmp_path / "x.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(FileFormatError):
        Record.open(path, HERE)
    assert path.read_text(encoding="utf-8") == text


@pytest.mark.parametrize("entries", [3, [3], [{"name": "gemm"}], [{"name": "a", "parameters": {}, "date": ""}]])
def test_entries_that_are_no_measurements_are_named(tmp_path, entries):
    path = tmp_path / "x.json"
    origins = {"measured": [], "not_told": [], "rest": "datasheet"}
    data = {"schema_version": 1, "origins": origins, "machine": HERE.as_dict(), "measurements": entries}
    path.write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(FileFormatError, match="measurements: an entry is no measurement"):
        Record.open(path, HERE)


def run_and_kill(path, seconds):
    """Keys in the file after a run on it was killed, some time after its first new measurement."""
    before = keys(path)
    command = ["-m", "planner", "calibrate", "run", "--device", "cpu", "--processes", "1", "--minutes", "1"]
    process = subprocess.Popen([sys.executable, *command, "--out", str(path)], stdout=subprocess.DEVNULL)
    deadline = time.time() + 60
    while keys(path) <= before and process.poll() is None and time.time() < deadline:
        time.sleep(0.01)
    time.sleep(seconds)
    seen = keys(path)
    process.kill()
    process.wait()
    return before, seen, keys(path)


def keys(path):
    """Of all measurements in a file, which has to be a whole one at any moment."""
    return Record.read(path).keys if path.exists() else set()


def killed(path, times):
    lottery = random.Random(7)
    for _ in range(times):
        before, seen, after = run_and_kill(path, lottery.uniform(0, 0.8))
        assert before < after
        assert seen <= after


def test_a_run_that_is_killed_keeps_what_it_measured_and_goes_on(tmp_path):
    killed(tmp_path / "x.json", 2)


@pytest.mark.slow
def test_twenty_kills_lose_nothing(tmp_path):
    killed(tmp_path / "x.json", 20)
