"""What is to be trained: batch, sequence, precision, optimizer, method."""

from __future__ import annotations

from dataclasses import dataclass

from planner.errors import SpecError

PRECISIONS = ("bf16", "fp16", "tf32", "fp32", "fp8", "mxfp8", "nvfp4")
OPTIMIZERS = ("adamw", "adamw-8bit", "adamw-8bit-paged", "sgd", "sgd-momentum", "lion", "adafactor", "muon")
METHODS = ("full", "lora", "qlora")
ATTENTION_BACKENDS = ("flash", "sdpa", "math")
STATES = ("mixed", "16bit")
LARGEST = {"global_batch_size": 2**25, "seq_len": 2**24, "lora_rank": 2**16}
"""Counts above these are slips of the pen; below them, all divisors can be tried one by one."""
LARGEST_AMOUNTS = {"tokens": 1e24, "usd_per_gpu_hour": 1e6}


def check_count(name: str, value: int) -> None:
    """Raise SpecError unless a count of the job (a key of LARGEST) is from 1 to its largest."""
    if not 1 <= value <= LARGEST[name]:
        raise SpecError(f"must be 1 to {LARGEST[name]:,}, not {value:,}", where=f"--{name.replace('_', '-')}")


@dataclass(frozen=True)
class Workload:
    """One training job, whatever the plan.

    `global_batch_size` counts sequences per optimizer step, `seq_len` tokens per sequence. `state` is "mixed" (fp32
    master weights and states) or "16bit" (weights, gradients and states in 16 bits). `attention`: "flash" (fused),
    "sdpa" (torch's choice, fused where it can) or "math" (scores in memory). `tokens` is the whole run's, 0 if not
    asked. Raises SpecError on values out of range.
    """

    global_batch_size: int
    seq_len: int
    precision: str = "bf16"
    state: str = "mixed"
    optimizer: str = "adamw"
    method: str = "full"
    lora_rank: int = 16
    attention: str = "flash"
    dropout: bool = False
    """Whether hidden states pass through dropout (GPT-3-like training; no recent large model does)."""
    tokens: float = 0.0
    usd_per_gpu_hour: float = 0.0
    """Price of one accelerator and hour; 0 takes the catalogue's range."""

    def __post_init__(self) -> None:
        """Check every field."""
        choices = {
            "precision": PRECISIONS,
            "state": STATES,
            "optimizer": OPTIMIZERS,
            "method": METHODS,
            "attention": ATTENTION_BACKENDS,
        }
        for name, known in choices.items():
            if getattr(self, name) not in known:
                raise SpecError(f"unknown {name} {getattr(self, name)!r}; known: {', '.join(known)}", where=f"--{name}")
        for name in LARGEST:
            check_count(name, getattr(self, name))
        for name, most in LARGEST_AMOUNTS.items():
            if not 0 <= getattr(self, name) <= most:
                where = f"--{name.replace('_', '-')}"
                raise SpecError(f"must be 0 to {most:g}, not {getattr(self, name):g}", where=where)

    @property
    def tokens_per_step(self) -> int:
        """Tokens of one optimizer step over all ranks."""
        return self.global_batch_size * self.seq_len
