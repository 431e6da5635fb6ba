"""Tiny models under any plan, run by the trainer in real processes that talk over gloo."""

import json
import multiprocessing
import os
import socket
from dataclasses import dataclass
from math import prod
from pathlib import Path

import pytest

from planner.catalogue.hardware import cluster
from planner.catalogue.models import model
from planner.catalogue.stacks import stack
from planner.spec.plan import PLAN_KINDS, Plan
from planner.spec.plan_file import PlanFile, ProfileReference, write_plan_file
from planner.spec.workload import Workload

pytest.importorskip("torch", reason="the trainer needs torch: pip install -e '.[trainer]'")

DENSE = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": 256,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
}
EXPERTS = {
    **DENSE,
    "model_type": "mixtral",
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
}
LATENT = {
    **DENSE,
    "model_type": "deepseek_v3",
    "num_key_value_heads": 8,
    "q_lora_rank": 32,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 8,
    "v_head_dim": 8,
    "first_k_dense_replace": 1,
    "moe_intermediate_size": 32,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 2,
}
STEPS = 5
PATIENCE = 300
"""Seconds after which a run that says nothing has hung."""


@dataclass
class Result:
    """What a run recorded; `exits` are the exit codes of its processes."""

    records: list
    exits: list = ()
    errors: str = ""

    @classmethod
    def of(cls, path, **others):
        """What a file of records holds."""
        lines = path.read_text().splitlines() if path.exists() else []
        return cls([json.loads(line) for line in lines], **others)

    def steps(self, name):
        """One figure of every step."""
        return [record[name] for record in self.records if record["event"] == "step"]

    @property
    def losses(self):
        return self.steps("loss")

    @property
    def norms(self):
        return self.steps("gradient_norm")


def write_plan(folder, plan, *, config=DENSE, seq_len=64, **workload):
    """A plan.json for a tiny model; kinds by name."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    fields = {key: PLAN_KINDS[key][value.upper()] if key in PLAN_KINDS else value for key, value in plan.items()}
    whole = Plan(**({"compiled": 0} | fields))
    ranks = whole.world_size
    contents = PlanFile(
        plan=whole,
        model=model(str(folder / "config.json")),
        cluster=cluster(f"{ranks}xa100-sxm-80gb" if ranks <= 8 else f"{ranks // 8}xdgx-a100"),
        workload=Workload(whole.global_batch_size, seq_len, **({"precision": "fp32"} | workload)),
        stack=stack("pytorch"),
        profile=ProfileReference("a100-sxm-80gb/pytorch", "0" * 12, "datasheet"),
    )
    return write_plan_file(contents, folder)


def _process(rank, world_size, port, output, arguments, address="127.0.0.1"):
    """One process of a run, as torchrun would start it."""
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world_size)}
    os.environ |= {"MASTER_ADDR": address, "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    os.dup2(os.open(f"{output}.{rank}", os.O_WRONLY | os.O_CREAT), 1)
    os.dup2(1, 2)
    import torch

    from planner.emit.trainer.train import main

    torch.set_num_threads(1)
    main(arguments)


@pytest.fixture(scope="session")
def processes():
    """Where processes are forked from: one that has imported torch already."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["planner.emit.trainer.train"])
    return context


@pytest.fixture
def run(processes, tmp_path):
    """A function that runs a plan.json with as many processes as it wants and returns its Result."""

    def start(plan, *options, steps=STEPS, world_size=None, name="run"):
        size = world_size or _processes_of(plan)
        record, output = tmp_path / f"{name}.jsonl", tmp_path / f"{name}.out"
        fixed = ["--device", "cpu", "--lr", "0.01", "--record", str(record), "--steps", str(steps)]
        arguments = [str(plan), *fixed, *options]
        port = _free_port()
        started = [processes.Process(target=_process, args=(r, size, port, output, arguments)) for r in range(size)]
        for process in started:
            process.start()
        for process in started:
            process.join(PATIENCE)
            if process.exitcode is None:
                process.kill()
        said = "".join(Path(f"{output}.{rank}").read_text() for rank in range(size))
        return Result.of(record, exits=[process.exitcode for process in started], errors=said)

    return start


def _processes_of(plan):
    degrees = json.loads(plan.read_text())["plan"]
    return prod(degrees[name] for name in ("tp", "pp", "cp", "dp_shard", "dp_replicate"))


def _free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]
