"""Settings of torchtitan: options of its command line, TOML of 0.2, or a module of 0.3, which is not executed.

Defaults: torchtitan 0.3.0, config/configs.py; 0.2.2, config/job_config.py.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from planner.emit.reading.settings import Settings, Source
from planner.emit.reading.shell import flags, processes
from planner.spec.plan import ContextKind, Offload, Recompute, Schedule, Sharding

SECTIONS = {"ParallelismConfig": "parallelism", "TrainingConfig": "training", "CompileConfig": "compile"}
"""Class of a section -> its name."""
SCHEDULES = {
    "1F1B": Schedule.ONE_F_ONE_B,
    "GPipe": Schedule.GPIPE,
    "Interleaved1F1B": Schedule.INTERLEAVED,
    "LoopedBFS": Schedule.GPIPE,
}
RECOMPUTATION = {"none": Recompute.NONE, "selective": Recompute.SELECTIVE, "full": Recompute.FULL}
POLICIES = {"FullAC": "full", "SelectiveAC": "selective", "None": "none"}
ROTATIONS = {"allgather": ContextKind.ALL_GATHER, "alltoall": ContextKind.RING}
SIGN = "--parallelism."
CHOICE = re.compile(r"[a-z][a-z_.-]*:[a-z][a-z_-]*")
"""A word that chooses a section's kind: `activation-checkpoint:full`."""

Values = Mapping[str, Any]


def reads(words: Sequence[str]) -> bool:
    """Whether words are options of its command line."""
    return any(word.startswith((SIGN, "--training.")) for word in words)


def read_flags(words: Sequence[str], source: Source, base: Values | None = None) -> Settings:
    """Settings from options `--section.name value`, over those of a module if it is known."""
    values = dict(base or {})
    found = flags(word for word in words if not CHOICE.fullmatch(word))
    for name, given in found.items():
        section, dot, option = name[2:].partition(".")
        key = f"{section}.{option}".replace("-", "_")
        if dot:
            values[key.replace(".no_", ".")] = given[0] if given else ".no_" not in key
    for word in words:
        kind, colon, policy = word.partition(":")
        if colon and kind.replace("_", "-") == "activation-checkpoint":
            values["activation_checkpoint.mode"] = policy
    untold = [] if base is not None else ["values that the command line does not name are torchtitan's defaults"]
    return _settings(values, source, world_size=processes(found), untold=untold)


def read_toml(data: Values, source: Source) -> Settings:
    """Settings from the tables of a TOML file of torchtitan 0.2."""
    values = {
        f"{section}.{name}": value
        for section, table in data.items()
        if isinstance(table, Mapping)
        for name, value in table.items()
    }
    if "context_parallel_rotate_method" not in data.get("parallelism", {}):
        values["parallelism.context_parallel_rotate_method"] = "allgather"
    return _settings(values, source, untold=[])


def is_module(tree: ast.Module) -> bool:
    """Whether Python source makes a configuration of torchtitan."""
    return any(True for _ in _functions(tree))


def read_module(tree: ast.Module, source: Source, function: str = "") -> Settings:
    """Settings that a function of a module would return, from its source alone."""
    values, untold = module_values(tree, source, function)
    return _settings(values, source, untold=untold)


def module_values(tree: ast.Module, source: Source, function: str = "") -> tuple[dict[str, Any], list[str]]:
    """`section.name` -> value of a module's configuration, and what is no plain value in it."""
    known = {each.name: each for each in _functions(tree)}
    if function not in known and len(known) != 1:
        raise source.error(
            f"makes {len(known)} configurations ({', '.join(known)}): read the command line that names one"
        )
    chosen = known.get(function) or next(iter(known.values()))
    values: dict[str, Any] = {}
    untold: list[str] = []
    for node in ast.walk(chosen):
        if isinstance(node, ast.Call):
            _take(node, values, untold)
    return values, untold


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            calls = [ast.unparse(each.func) for each in ast.walk(node) if isinstance(each, ast.Call)]
            if "Trainer.Config" in calls or "ParallelismConfig" in calls:
                yield node


def _take(call: ast.Call, values: dict[str, Any], untold: list[str]) -> None:
    """The keyword arguments of a call that makes a section."""
    name = ast.unparse(call.func)
    if name.endswith("Trainer.Config"):
        for each in call.keywords:
            if each.arg == "activation_checkpoint":
                policy = ast.unparse(each.value).partition(".")[0]
                values["activation_checkpoint.mode"] = POLICIES.get(policy, policy)
    section = SECTIONS.get(name)
    for each in call.keywords if section else ():
        key = f"{section}.{each.arg}"
        try:
            values[key] = ast.literal_eval(_listed(each.value))
        except (ValueError, TypeError, RecursionError):
            untold.append(f"{key} is {ast.unparse(each.value)[:60]}, which is no plain value: its default counts")


def _listed(node: ast.expr) -> ast.expr:
    """`stages([...])` of a module that the planner wrote stands for the numbers in it."""
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "stages" and len(node.args) == 1:
        return node.args[0]
    return node


def _settings(values: Values, source: Source, *, untold: Sequence[str], world_size: int = 0) -> Settings:
    given = _Given(values, source)
    stages = _stages(values)
    return Settings(
        what="torchtitan settings",
        stack="torchtitan",
        plan={**_degrees(given), **_pipeline(given, stages), **_switches(given)},
        job=dict(_job(given)),
        world_size=world_size,
        layers_per_stage=_deal(given, stages),
        experts_by_ep_or_tp="parallelism.expert_tensor_parallel_degree" not in values,
        untold=(*untold, *_untold(given)),
    )


class _Given:
    """Values by `section.name`."""

    def __init__(self, values: Values, source: Source) -> None:
        self.values, self.source = values, source

    def number(self, name: str, default: int) -> int:
        """A whole number."""
        return self.source.whole(name, self.values[name]) if name in self.values else default

    def truth(self, name: str, *, default: bool) -> bool:
        """True or false."""
        return self.source.truth(name, self.values[name]) if name in self.values else default

    def text(self, name: str, default: str) -> str:
        """A text."""
        return str(self.values.get(name, default))


def _degrees(given: _Given) -> dict[str, int]:
    tp = given.number("parallelism.tensor_parallel_degree", 1)
    cp = given.number("parallelism.context_parallel_degree", 1)
    degrees = {
        "tp": tp,
        "cp": cp,
        "pp": given.number("parallelism.pipeline_parallel_degree", 1),
        "ep": given.number("parallelism.expert_parallel_degree", 1),
        "dp_replicate": given.number("parallelism.data_parallel_replicate_degree", 1),
        "sequence_parallel": int(tp > 1 and given.truth("parallelism.enable_sequence_parallel", default=True)),
        "async_tp": int(_async(given)),
        "context_kind": _context_kind(given) if cp > 1 else ContextKind.NONE,
        "expert_tp": given.number("parallelism.expert_tensor_parallel_degree", 1),
    }
    shard = given.number("parallelism.data_parallel_shard_degree", -1)
    return degrees | ({} if shard == -1 else {"dp_shard": shard})


def _async(given: _Given) -> bool:
    names = ("compile.enable_async_tensor_parallel", "parallelism.enable_async_tensor_parallel")
    return any(given.truth(name, default=False) for name in names)


def _context_kind(given: _Given) -> int:
    rotation = given.text("parallelism.context_parallel_rotate_method", "allgather")
    kind: ContextKind = given.source.one_of("context_parallel_rotate_method", rotation, ROTATIONS)
    return kind


def _pipeline(given: _Given, stages: Sequence[int]) -> dict[str, int]:
    """Batch and schedule: with a pipeline, the local batch is all micro-batches of a step."""
    pp = given.number("parallelism.pipeline_parallel_degree", 1)
    local = given.number("training.local_batch_size", given.number("training.batch_size", 8))
    reshard = given.text("parallelism.fsdp_reshard_after_forward", "default")
    kept = reshard == "never" or (reshard == "default" and pp > 1)
    states = {"sharding": Sharding.ZERO3_KEEP if kept else Sharding.ZERO3}
    if pp == 1:
        return states | {"schedule": Schedule.NONE, "micro_batch_size": local}
    name = given.text("parallelism.pipeline_parallel_schedule", "1F1B")
    schedule = given.source.one_of("pipeline_parallel_schedule", name, SCHEDULES)
    chunks = len(stages) // pp if stages else 2 if schedule == Schedule.INTERLEAVED else 1
    return states | {
        "schedule": schedule,
        "virtual_stages": max(chunks, 1),
        "micro_batch_size": given.number("parallelism.pipeline_parallel_microbatch_size", 1),
    }


def _switches(given: _Given) -> dict[str, int]:
    mode = given.text("activation_checkpoint.mode", "selective")
    compiled = given.truth("compile.enable", default=False)
    offloaded = given.truth("training.enable_cpu_offload", default=False)
    return {
        "recompute": RECOMPUTATION.get(mode, Recompute.SELECTIVE),
        "compiled": int(compiled),
        "offload": Offload.ALL if offloaded else Offload.NONE,
    }


def _job(given: _Given) -> Iterator[tuple[str, Any]]:
    batch = given.number("training.global_batch_size", -1)
    if batch > 0:
        yield "global_batch_size", batch
    elif given.number("parallelism.pipeline_parallel_degree", 1) > 1:
        yield "sequences_per_rank", given.number("training.local_batch_size", 8)
    yield "seq_len", given.number("training.seq_len", 2048)
    yield "precision", "fp32" if given.text("training.mixed_precision_param", "bfloat16") == "float32" else "bf16"
    if given.text("training.dtype", "float32") == "bfloat16":
        yield "state", "16bit"


def _stages(values: Values) -> tuple[int, ...]:
    """Layers of every chunk, where the modules of the chunks are listed."""
    listed = values.get("parallelism.module_fqns_per_model_part") or ()
    if all(isinstance(each, int) for each in listed):
        return tuple(listed)
    return tuple(sum(str(name).startswith("layers.") for name in part) for part in listed)


def _deal(given: _Given, stages: tuple[int, ...]) -> Callable[[int], tuple[int, ...]] | None:
    """The layers of every chunk: as they are listed, or as torchtitan deals them."""
    pp = given.number("parallelism.pipeline_parallel_degree", 1)
    if pp == 1 or stages:
        return (lambda _layers: stages) if stages else None
    first = given.number("parallelism.pipeline_parallel_first_stage_less_layers", 1)
    last = given.number("parallelism.pipeline_parallel_last_stage_less_layers", 1)
    each = given.number("parallelism.pipeline_parallel_layers_per_stage", 0)
    several = given.text("parallelism.pipeline_parallel_schedule", "1F1B") in ("Interleaved1F1B", "LoopedBFS")
    chunks = pp * (2 if several else 1)
    return lambda layers: dealt(layers, -(-(layers + first + last) // each) if each else chunks, first, last)


def dealt(layers: int, chunks: int, first: int, last: int) -> tuple[int, ...]:
    """Layers of every chunk where embedding and head count as `first` and `last` layers.

    Source: torchtitan 0.3.0, distributed/pipeline_parallel.py, _generate_llm_fqn_per_model_part.

    >>> dealt(32, 4, 1, 1)
    (8, 9, 8, 7)
    """
    each, longer = divmod(layers + first + last, chunks)
    sizes = [each + (i < longer) for i in range(chunks)]
    sizes[0] -= first
    sizes[-1] -= last
    return tuple(max(size, 0) for size in sizes)


def _untold(given: _Given) -> Iterator[str]:
    mode = given.text("activation_checkpoint.mode", "selective")
    if mode not in RECOMPUTATION:
        yield f"activation checkpointing by {mode} counts as selective"
    if given.text("activation_checkpoint.selective_ac_option", "op") not in ("op", "2"):
        yield f"activation checkpointing of layers by {given.text('activation_checkpoint.selective_ac_option', '')}"
