"""Runs a script for accelerate on CPUs as if they were GPUs, which accelerate does not by itself: FSDP2 over gloo.
`torchrun ... accelerate_on_cpu.py accelerate.yaml train.py ARGUMENTS`."""

import os
import runpy
import sys

import torch
from accelerate.commands.launch import _validate_launch_command, launch_command_parser, prepare_multi_gpu_env
from accelerate.state import PartialState
from accelerate.utils import DistributedType

PartialState._prepare_backend = lambda *_args, **_others: ("gloo", DistributedType.MULTI_GPU)
PartialState.set_device = lambda self: setattr(self, "device", torch.device("cpu"))

_, config, script, *arguments = sys.argv
launch, *_ = _validate_launch_command(launch_command_parser().parse_args(["--config_file", config, script]))
ranks = {name: os.environ[name] for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")}
os.environ |= {key: str(value) for key, value in prepare_multi_gpu_env(launch).items()} | ranks
os.environ["ACCELERATE_BYPASS_DEVICE_MAP"] = "true"
sys.argv = [script, *arguments]
runpy.run_path(script, run_name="__main__")
