"""Arguments of Megatron-LM (pretrain_gpt.py) read as settings. Defaults: Megatron-LM @d98e8a6, core 0.20.0."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from planner.emit.reading.settings import Settings, Source
from planner.emit.reading.shell import flags, processes
from planner.spec.plan import ContextKind, Offload, RankOrder, Recompute, Schedule, Sharding

SIGN = "--tensor-model-parallel-size"
SIGNS = (SIGN, "--pipeline-model-parallel-size", "--use-distributed-optimizer", "--micro-batch-size")
STRATEGIES = {
    "no_shard": Sharding.NONE,
    "optim": Sharding.ZERO1,
    "optim_grads": Sharding.ZERO2,
    "optim_grads_params": Sharding.ZERO3,
}
CONTEXT_KINDS = {"p2p": ContextKind.RING, "a2a": ContextKind.ULYSSES, "allgather": ContextKind.ALL_GATHER}
FP8 = {"mxfp8": "mxfp8"}
OPTIMIZERS = {"adam": "adamw", "lion": "lion", "muon": "muon", "dist_muon": "muon"}
STAGE = re.compile(r"t(?:\*(\d+))?")

Found = Mapping[str, list[str]]


def reads(words: Sequence[str]) -> bool:
    """Whether words are such arguments."""
    found = flags(words)
    return sum(sign in found for sign in SIGNS) >= 2 or SIGN in found


def read(words: Sequence[str], source: Source) -> Settings:
    """The settings. Raises FileFormatError for values that are no numbers or unknown names."""
    found = flags(words)
    given = _Given(found, source)
    stages = _layout(found, source)
    each = given.number("--num-layers-per-virtual-pipeline-stage", 0)
    return Settings(
        what="Megatron-LM arguments",
        stack="megatron-core",
        plan={**_degrees(given), **_pipeline(given, stages), **_states(given), **_switches(given)},
        job=dict(_job(given)),
        world_size=processes(found),
        layers_per_stage=(lambda layers: stages or (each,) * (layers // each)) if stages or each > 0 else None,
        untold=tuple(_untold(found)),
    )


class _Given:
    """Arguments by name, as numbers and texts."""

    def __init__(self, found: Found, source: Source) -> None:
        self.found, self.source = found, source

    def __contains__(self, name: str) -> bool:
        return name in self.found

    def number(self, name: str, default: int) -> int:
        """The number behind an argument."""
        return self.source.whole(name, self.text(name)) if self.text(name) is not None else default

    def text(self, name: str) -> str | None:
        """The first word behind an argument."""
        return next(iter(self.found.get(name, [])), None)


def _degrees(given: _Given) -> dict[str, int]:
    tp, cp = given.number(SIGN, 1), given.number("--context-parallel-size", 1)
    degrees = {
        "tp": tp,
        "pp": given.number("--pipeline-model-parallel-size", 1),
        "cp": cp,
        "context_kind": _context_kind(given) if cp > 1 else ContextKind.NONE,
        "sequence_parallel": int("--sequence-parallel" in given and tp > 1),
        "async_tp": int("--tp-comm-overlap" in given),
        "rank_order": RankOrder.TP_CP_PP_DP if "--use-tp-pp-dp-mapping" in given else RankOrder.TP_CP_DP_PP,
    }
    if "--num-experts" in given:
        degrees["ep"] = given.number("--expert-model-parallel-size", 1)
        degrees["expert_tp"] = given.number("--expert-tensor-parallel-size", tp)
    return degrees


def _context_kind(given: _Given) -> int:
    kind: ContextKind = given.source.one_of("cp-comm-type", given.text("--cp-comm-type") or "p2p", CONTEXT_KINDS)
    return kind


def _pipeline(given: _Given, stages: Sequence[int]) -> dict[str, int]:
    pp = given.number("--pipeline-model-parallel-size", 1)
    if pp == 1:
        return {"schedule": Schedule.NONE}
    chunks = len(stages) // pp if stages else given.number("--num-virtual-stages-per-pipeline-rank", 1)
    each = given.number("--num-layers-per-virtual-pipeline-stage", 0)
    if each > 0:
        chunks = max(given.number("--num-layers", 0) // pp // each, 1)
    return {
        "schedule": Schedule.INTERLEAVED if chunks > 1 else Schedule.ONE_F_ONE_B,
        "virtual_stages": chunks,
        "first_stage_layers": given.number("--decoder-first-pipeline-num-layers", 0),
        "last_stage_layers": given.number("--decoder-last-pipeline-num-layers", 0),
    }


def _states(given: _Given) -> dict[str, int]:
    """What is sharded, and over how many ranks."""
    sharding = Sharding.ZERO1 if "--use-distributed-optimizer" in given else Sharding.NONE
    if "--use-megatron-fsdp" in given:
        strategy = given.text("--data-parallel-sharding-strategy") or "optim_grads_params"
        sharding = given.source.one_of("data-parallel-sharding-strategy", strategy, STRATEGIES)
    if "--use-torch-fsdp2" in given:
        kept = "--torch-fsdp2-no-reshard-after-forward" in given
        sharding = Sharding.ZERO3_KEEP if kept else Sharding.ZERO3
    states: dict[str, int] = {"sharding": sharding}
    if "--num-distributed-optimizer-instances" in given:
        states["dp_replicate"] = given.number("--num-distributed-optimizer-instances", 1)
    return states


def _switches(given: _Given) -> dict[str, int]:
    granularity = "selective" if "--recompute-activations" in given else given.text("--recompute-granularity")
    kinds = {"selective": Recompute.SELECTIVE, "full": Recompute.FULL}
    return {
        "micro_batch_size": given.number("--micro-batch-size", 1),
        "recompute": kinds.get(granularity or "", Recompute.NONE),
        "offload": Offload.OPTIMIZER if "--optimizer-cpu-offload" in given else Offload.NONE,
        "compiled": 1,
    }


def _job(given: _Given) -> Iterator[tuple[str, Any]]:
    for name in ("global_batch_size", "seq_len"):
        flag = "--seq-length" if name == "seq_len" else "--global-batch-size"
        if flag in given:
            yield name, given.number(flag, 0)
    yield "precision", _precision(given)
    optimizer = given.text("--optimizer") or "adam"
    momentum = given.text("--sgd-momentum") or "0.9"
    sgd = "sgd" if re.fullmatch(r"0*\.?0*", momentum) else "sgd-momentum"
    yield "optimizer", sgd if optimizer == "sgd" else OPTIMIZERS.get(optimizer, "adamw")
    if given.text("--attention-backend") == "unfused":
        yield "attention", "math"


def _precision(given: _Given) -> str:
    if "--fp8-format" in given:
        return FP8.get(given.text("--fp8-recipe") or "", "fp8")
    if "--fp4-format" in given:
        return "nvfp4"
    return "bf16" if "--bf16" in given else "fp16" if "--fp16" in given else "fp32"


def _layout(found: Found, source: Source) -> tuple[int, ...]:
    """Layers of every chunk, from Megatron's notation: E embedding, t layer, m prediction layer, L loss, (t|)*3."""
    text = "".join(found.get("--pipeline-model-parallel-layout", []))
    if not text:
        return ()
    for _ in range(len(text)):
        grown = re.sub(r"\(([^()]*)\)(?:\*(\d{1,3}))?", lambda each: each[1] * int(each[2] or 1), text)
        if grown == text or len(grown) > 100_000:
            break
        text = grown
    if not re.fullmatch(r"[EtmL|,*\d\s]*", text):
        raise source.error(f"--pipeline-model-parallel-layout {text[:40]!r} is no layout such as Et*3|t*4|t*3L")
    return tuple(sum(int(count or 1) for count in STAGE.findall(part)) for part in text.split("|"))


def _untold(found: Found) -> Iterator[str]:
    if "--global-batch-size" not in found:
        yield "no --global-batch-size: Megatron takes one micro-batch a rank"
    if "--yaml-cfg" in found:
        yield f"--yaml-cfg {' '.join(found['--yaml-cfg'])} may say more"
    layers = found.get("--recompute-num-layers", ["1"])
    if found.get("--recompute-method") == ["block"]:
        yield f"of a stage only {' '.join(layers)} layers are computed again; here all are"
    modules = [each for each in found.get("--recompute-modules", []) if each != "core_attn"]
    if modules:
        yield f"computed again are {', '.join(modules)} too; here the attention core alone"
