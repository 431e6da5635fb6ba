"""A real run of the trainer over gloo, its record and its profiler's trace read by `planner import steps`."""

import json
import os

from planner.answer.steps.reading import import_steps
from planner.answer.steps.records import StepsAsked

from .conftest import _free_port, write_plan


def test_a_record_tells_the_whole_plan_of_its_run(run, tmp_path):
    path = write_plan(tmp_path / "plan", {"dp_shard": 2, "sharding": "zero3", "micro_batch_size": 2})
    found = run(path, steps=8)
    assert found.exits == [0, 0], found.errors
    (read,) = import_steps([tmp_path / "run.jsonl"], StepsAsked(cluster="2xa100-sxm-80gb")).runs
    assert read.times.steps == 8
    assert set(read.times.counted) <= set(found.steps("step_time_s")[3:])
    assert read.trainer == "the planner's own trainer"
    # It ran on the host's processor: neither its memory nor the named cluster's prediction is that of a GPU.
    assert read.memory == {}
    assert read.ranked is None
    assert "of a run on" in read.notes[0]
    assert (read.ranks, read.stated.seq_len, read.stated.global_batch) == (2, 64, 4)


def _profiled(rank, port, arguments, trace):
    """One process of a run in which torch's profiler marks every step."""
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    from torch.profiler import ProfilerActivity, profile, schedule

    from planner.emit.trainer.record import Recorder
    from planner.emit.trainer.train import main

    plain = Recorder.step
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=1, warmup=1, active=4, repeat=1),
        on_trace_ready=lambda made: made.export_chrome_trace(f"{trace}.{rank}.json.gz"),
    ) as profiler:

        def step(self, *given, **values):
            plain(self, *given, **values)
            profiler.step()

        Recorder.step = step
        main(arguments)


def test_a_trace_of_the_trainer_has_the_times_of_its_record(processes, tmp_path):
    path = write_plan(tmp_path / "plan", {"dp_replicate": 2, "micro_batch_size": 4}, seq_len=256)
    record, trace, port = tmp_path / "run.jsonl", tmp_path / "trace", _free_port()
    arguments = [str(path), "--device", "cpu", "--record", str(record), "--steps", "7"]
    started = [processes.Process(target=_profiled, args=(rank, port, arguments, trace)) for rank in range(2)]
    for process in started:
        process.start()
    for process in started:
        process.join(120)
    assert [process.exitcode for process in started] == [0, 0]
    first, second = import_steps([tmp_path / "trace.0.json.gz", tmp_path / "trace.1.json.gz"]).runs
    assert first.trace.numbers == (2, 3, 4, 5)
    assert first.ranks == second.ranks == 2
    told = [json.loads(line) for line in record.read_text().splitlines()]
    timed = [each["step_time_s"] for each in told if each["event"] == "step"][2:6]
    # The profiler's step holds what is between two steps too: fetching data, writing the record.
    assert sum(first.trace.seconds) >= 0.95 * sum(timed)
    busy = first.trace.busy
    assert busy.collectives["all_reduce"] > 0
    assert 0 < busy.exposed <= busy.communication
    assert busy.kinds["matrix products"] > 0
    assert busy.kinds["attention"] > 0
