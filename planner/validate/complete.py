"""Fills what a row leaves out: by identity where the rest determines it, else by the stack's defaults."""

from __future__ import annotations

from dataclasses import fields, replace
from math import prod
from typing import Any

from planner.errors import PlannerError
from planner.validate.columns import Stated
from planner.validate.defaults import RunDefaults, run_defaults

BY_IDENTITY = ("dp", "tp", "pp", "grad_accum", "global_batch", "micro_batch", "shard_size", "kv_heads")
"""Columns that are not worth a word where the others determine them."""
DEGREES = ("dp", "tp", "pp")
UNSTATED = (0, "", None)
USUAL = {
    "cp": 1,
    "ep": 1,
    "method": "full",
    "optimizer": "adamw",
    "precision_compute": "bf16",
    "precision_state": "mixed",
}
"""What any stack does unless told otherwise."""
INTERLEAVED_CHUNKS = 2
"""Chunks per rank of an interleaved schedule that does not say."""


class SkippedRun(PlannerError):
    """A row that cannot become a run; the message is the reason, in plain words."""


def completed(stated: Stated) -> tuple[Stated, tuple[str, ...]]:
    """The row with every gap filled, and what was assumed, as "column value" in the order of the columns.

    Raises SkippedRun where a gap cannot be filled or the numbers contradict each other, SpecError for an unknown
    stack.
    """
    filled = _filled(stated, stack="other")
    defaults = run_defaults(filled.stack)
    _check_stated(stated)
    filled = _with_degrees(_with_shape(filled), defaults)
    filled, guessed = _with_batch(filled, defaults)
    filled = _with_switches(filled, defaults)
    return filled, _assumptions(stated, filled, {*BY_IDENTITY, *_idle(filled, defaults)} - guessed)


def _filled(stated: Stated, **values: Any) -> Stated:
    """The row with `values` where it says nothing."""
    return replace(stated, **{name: value for name, value in values.items() if _unstated(stated, name)})


def _unstated(stated: Stated, name: str) -> bool:
    value = getattr(stated, name)
    return value is not False and value in UNSTATED


def _assumptions(stated: Stated, filled: Stated, silent: set[str]) -> tuple[str, ...]:
    changed = [field.name for field in fields(Stated) if getattr(stated, field.name) != getattr(filled, field.name)]
    return tuple(f"{name} {str(getattr(filled, name)).lower()}" for name in changed if name not in silent)


def _idle(filled: Stated, defaults: RunDefaults) -> set[str]:
    """Columns that make no difference to this run, or whose default goes without saying."""
    conditions = {
        "vpp": filled.vpp == 1,
        "pp_schedule": filled.pp == 1,
        "sequence_parallel": filled.tp == 1,
        "ep": not filled.experts,
        "compile": defaults.fused,
        "cpu_offload": True,
        "dropout": not filled.dropout,
    }
    return {name for name, idle in conditions.items() if idle}


def _check_stated(stated: Stated) -> None:
    missing = [name for name in ("layers", "hidden", "heads", "vocab") if not getattr(stated, name)]
    if missing:
        raise SkippedRun(f"the model's dimensions are not stated ({', '.join(missing)})")
    if not stated.n_gpus or not stated.gpu:
        raise SkippedRun("the accelerators are not stated")
    if not stated.seq_len:
        raise SkippedRun("seq_len is not stated")


def _with_shape(stated: Stated) -> Stated:
    """Dimensions of the model that follow from the others or from what is usual."""
    plain = stated.ffn_hidden == 4 * stated.hidden and not stated.experts
    stated = _filled(stated, mlp="gelu" if plain else "swiglu", kv_heads=stated.heads)
    if not stated.experts:
        usual = 4 * stated.hidden if stated.mlp == "gelu" else round(8 * stated.hidden / 3 / 256) * 256
        stated = _filled(stated, ffn_hidden=usual)
    return _filled(stated, tied_embeddings=stated.mlp == "gelu")


def _with_degrees(stated: Stated, defaults: RunDefaults) -> Stated:
    """Parallel degrees; one of dp, tp and pp follows from the others."""
    stated = _filled(stated, **USUAL)
    if defaults.data_parallel_only or stated.n_gpus == 1:
        stated = _filled(stated, tp=1, pp=1)
    unknown = [name for name in DEGREES if not getattr(stated, name)]
    if len(unknown) > 1:
        raise SkippedRun(f"parallel degrees are not stated ({', '.join(unknown)})")
    if unknown:
        rest = prod(getattr(stated, name) or 1 for name in (*DEGREES, "cp"))
        if stated.n_gpus % rest:
            raise SkippedRun(f"the stated degrees multiply to {rest}, which does not divide {stated.n_gpus} GPUs")
        stated = _filled(stated, **{unknown[0]: stated.n_gpus // rest})
    product = stated.dp * stated.tp * stated.pp * stated.cp
    if product != stated.n_gpus:
        raise SkippedRun(f"dp x tp x pp x cp is {product}, but there are {stated.n_gpus} GPUs")
    return stated


def _with_batch(stated: Stated, defaults: RunDefaults) -> tuple[Stated, set[str]]:
    """Micro batch, accumulation and global batch, and which of them were guessed rather than derived."""
    guessed = {name for name in ("micro_batch", "global_batch") if not getattr(stated, name)}
    micro, steps, batch = stated.micro_batch, stated.grad_accum, stated.global_batch
    if batch and steps and not micro:
        micro = _share(batch, stated.dp * steps, f"dp {stated.dp} x grad_accum {steps}")
        guessed = set()
    if micro and steps and not batch:
        guessed = set()
    micro = micro or (_usual_micro_batch(stated, defaults) if batch else 1)
    batch = batch or micro * stated.dp * (steps or 1)
    each = _share(batch, micro * stated.dp, f"micro_batch {micro} x dp {stated.dp}")
    if steps and steps != each:
        raise SkippedRun(
            f"micro_batch {micro} x grad_accum {steps} x dp {stated.dp} is {micro * steps * stated.dp}, "
            f"but global_batch is {batch}"
        )
    return replace(stated, micro_batch=micro, grad_accum=each, global_batch=batch), guessed


def _usual_micro_batch(stated: Stated, defaults: RunDefaults) -> int:
    """What the stack takes of a rank's batch at a time."""
    local = _share(stated.global_batch, stated.dp, f"dp {stated.dp}")
    if stated.pp > 1 and defaults.micro_batch == "local":
        return 1
    pieces = {"local": 1, "stages": stated.pp}.get(defaults.micro_batch, local)
    return local // pieces if local % pieces == 0 else 1


def _share(batch: int, among: int, words: str) -> int:
    if batch % among:
        raise SkippedRun(f"global_batch {batch} is not a multiple of {words}")
    return batch // among


def _with_switches(stated: Stated, defaults: RunDefaults) -> Stated:
    """Sharding, recomputation, kernels and schedule."""
    interleaved = stated.pp_schedule.startswith("interleaved")
    stated = _filled(stated, vpp=INTERLEAVED_CHUNKS if interleaved and stated.pp > 1 else 1)
    one_by_one = "1f1b" if stated.vpp == 1 else "interleaved-1f1b"
    return _filled(
        stated,
        sharding=defaults.sharding,
        shard_size=stated.dp,
        recompute_mode=defaults.recompute,
        flash_attention=defaults.attention,
        sequence_parallel=defaults.sequence_parallel,
        dropout=defaults.dropout and stated.mlp == "gelu",
        pp_schedule="none" if stated.pp == 1 else one_by_one,
        compile=False,
        cpu_offload="false",
    )
