"""A run in this process: what fails is kept with its reason, and the run goes on."""

from calibration.command import Fit
from calibration.measure.run import Job, run
from calibration.measurements import Measurement
from calibration.record import Record

DTENSOR = Measurement("dispatch", {"operator": "add", "tensor": "dtensor"})
PLAIN = Measurement("dispatch", {"operator": "add", "tensor": "plain"})


def job(path, measurements, seconds=30.0):
    return Job("cpu", path, measurements, Fit("pytorch"), seconds, processes=1, quiet=True)


def test_what_one_process_cannot_measure_is_kept_as_failed_and_the_run_goes_on(tmp_path):
    run(job(tmp_path / "x.json", [DTENSOR, PLAIN]))
    failed, measured = Record.read(tmp_path / "x.json").entries
    assert failed.measured is None
    assert failed.failure == "a DTensor needs several ranks"
    assert measured.measured.value > 0
    assert measured.failure == ""


def test_what_is_in_the_file_is_not_measured_again(tmp_path):
    run(job(tmp_path / "x.json", [PLAIN]))
    first = Record.read(tmp_path / "x.json").entries
    run(job(tmp_path / "x.json", [PLAIN, Measurement("tiny_layer")]))
    assert Record.read(tmp_path / "x.json").entries[0] == first[0]
    assert len(Record.read(tmp_path / "x.json").entries) == 2


def test_a_budget_that_is_spent_ends_the_run_before_the_next_measurement(tmp_path):
    run(job(tmp_path / "x.json", [PLAIN], seconds=0.0))
    assert not (tmp_path / "x.json").exists() or not Record.read(tmp_path / "x.json").entries
