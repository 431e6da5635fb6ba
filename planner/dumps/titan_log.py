"""What torchtitan 0.2 and 0.3 print of a run before its first step: degrees, batch, recomputation, compilation."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from planner.dumps.text import whole_number
from planner.spec.plan import Recompute

MESH = re.compile(r"Building device mesh with parallelism: ([\w=, ]{1,200})", re.ASCII)
DEGREE = re.compile(r"\b(pp|dp_replicate|dp_shard|cp|tp|ep)=(\d{1,7})\b", re.ASCII)
BATCH = re.compile(
    r"local batch size (\d{1,9}), global batch size (\d{1,9}), gradient[ _]accumulation[ _]steps:? (\d{1,9}), "
    r"sequence length (\d{1,9})",
    re.ASCII,
)
RECOMPUTE = re.compile(r"Applied (selective|full|FullAC|SelectiveAC) activation checkpointing", re.ASCII)
COMPILED = "Compiling each TransformerBlock"
LONGEST = 2**20
"""Characters of a log in which such lines are looked for: they come first."""


@dataclass(frozen=True)
class TitanHead:
    """Fields of a plan and of a job, as far as they are told."""

    plan: Mapping[str, int] = field(default_factory=dict)
    job: Mapping[str, int] = field(default_factory=dict)


def read_titan_head(text: str) -> TitanHead | None:
    """The lines of a log's head; None where there is neither a mesh nor a batch."""
    head = text[:LONGEST]
    mesh, batch = MESH.search(head), BATCH.search(head)
    plan = {name: int(degree) for name, degree in DEGREE.findall(mesh[1])} if mesh else {}
    job: dict[str, int] = {}
    if batch:
        micro, sequences, accumulated, seq_len = (whole_number(each) or 1 for each in batch.groups())
        job = {"global_batch_size": sequences, "seq_len": seq_len}
        if plan.get("pp", 1) == 1:
            plan |= {"micro_batch_size": micro, "num_microbatches": accumulated}
    if not plan and not job:
        return None
    kind = RECOMPUTE.search(head)
    recompute = (Recompute.FULL if kind[1].lower().startswith("full") else Recompute.SELECTIVE) if kind else 0
    return TitanHead(plan | {"recompute": int(recompute), "compiled": int(COMPILED in head)}, job)
