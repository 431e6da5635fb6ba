"""What runs have to share so that their plans can be compared."""

from __future__ import annotations

from dataclasses import dataclass, fields

from planner.validate.columns import Stated


@dataclass(frozen=True)
class Job:
    """What the plans of a group answer: runs that differ in anything of it are not compared."""

    source_id: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn_hidden: int
    mlp: str
    vocab: int
    tied_embeddings: bool | None
    experts: int
    experts_topk: int
    moe_ffn_hidden: int
    method: str
    stack: str
    precision_compute: str
    precision_state: str
    gpu: str
    n_gpus: int
    seq_len: int
    global_batch: int

    @classmethod
    def of(cls, filled: Stated) -> Job:
        """The job of a completed row."""
        return cls(**{field.name: getattr(filled, field.name) for field in fields(cls)})

    def __str__(self) -> str:
        shape = f"{self.layers}x{self.hidden}" + (f" {self.experts} experts" if self.experts else "")
        return (
            f"{self.source_id}: {shape}, {self.stack} {self.method} {self.precision_compute}, "
            f"{self.n_gpus} x {self.gpu}, sequences of {self.seq_len}, batch {self.global_batch}"
        )
