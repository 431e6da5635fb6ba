"""Time training steps in turns: `torchrun -m tests.calibration.timed_steps STEPS.json OUT.json ROUNDS`."""

import json
import sys
from pathlib import Path
from statistics import median

import torch
import torch.distributed as dist

from calibration.measure.training_step import _settings
from planner.emit.trainer import arguments
from planner.emit.trainer.record import Recorder
from planner.emit.trainer.train import Run

STEPS = 3
"""In one turn; the first does not count."""


def main(steps, out, rounds):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    options = arguments.parse(["-"])
    options.record, options.steps = None, STEPS
    runs = [Run(_settings(step), options, torch.device("cpu")) for step in steps]
    times = [[] for _ in runs]
    for turn in range(rounds + 1):
        for run, own in zip(runs, times, strict=True):
            run.record = Recorder(None, warmup=0, silent=True)
            dist.barrier()
            run.steps()
            slowest = torch.tensor(run.record.times[1:])
            dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
            # In the first turn connections are opened.
            own += slowest.tolist() if turn else []
    if dist.get_rank() == 0:
        out.write_text(json.dumps([[median(own), min(own), max(own)] for own in times]))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]), int(sys.argv[3]))
