"""A run that is known in full as a row of the table of measured runs: the inverse of reading one."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import Any

from planner.errors import SpecError
from planner.quantities import to_base
from planner.spec.model import Model
from planner.spec.plan import ContextKind, Offload, Plan, Recompute, Schedule, Sharding
from planner.spec.workload import Workload
from planner.validate.columns import Measured, Stated
from planner.validate.complete import SkippedRun, completed
from planner.validate.run_model import LATENT
from planner.validate.run_plan import KEEPS_GATHERED
from planner.validate.runs import Configuration, configured

COLUMNS = (*(field.name for field in fields(Stated)), *(field.name for field in fields(Measured)))
SHARDINGS = ("ddp", "zero1", "zero2", "zero3", "zero3")
"""Word for each code of `Sharding`."""
SCHEDULES = {
    Schedule.NONE: "none",
    Schedule.GPIPE: "gpipe",
    Schedule.ONE_F_ONE_B: "1f1b",
    Schedule.INTERLEAVED: "interleaved-1f1b",
    Schedule.ZB_H1: "zb-h1",
}
OFFLOADS = {Offload.NONE: "false", Offload.OPTIMIZER: "optimizer", Offload.ALL: "true"}


def stated_row(name: str, run: Configuration) -> tuple[Stated, tuple[str, ...]]:
    """The row of a run, and what of the run the table's columns cannot say, in words."""
    cluster, plan = run.cluster, run.plan
    node, fabric = cluster.node, cluster.node.fabric
    replicates = int(plan.dp_replicate) > 1 and plan.sharding in (Sharding.ZERO3, Sharding.ZERO3_KEEP)
    row = Stated(
        id=name,
        source_id="own",
        stack=run.stack.name,
        **_dimensions(run.model),
        gpu=node.accelerator.name,
        n_gpus=cluster.world_size,
        gpus_per_node=min(node.gpus_per_node, cluster.world_size),
        intra=node.link,
        fabric=fabric.kind if cluster.num_nodes > 1 else "none",
        nic_gbps_per_gpu=fabric.node_bandwidth / node.gpus_per_node / to_base(1.0, "Gb/s"),
        dp=int(plan.dp),
        tp=int(plan.tp),
        pp=int(plan.pp),
        vpp=int(plan.virtual_stages),
        cp=int(plan.cp),
        ep=int(plan.ep),
        sharding="hsdp" if replicates else SHARDINGS[int(plan.sharding)],
        shard_size=int(plan.dp_shard),
        sequence_parallel=bool(plan.sequence_parallel),
        micro_batch=int(plan.micro_batch_size),
        grad_accum=int(plan.num_microbatches),
        pp_schedule=SCHEDULES[Schedule(int(plan.schedule))],
        recompute_mode=Recompute(int(plan.recompute)).name.lower(),
        cpu_offload=OFFLOADS[Offload(int(plan.offload))],
        compile=bool(plan.compiled),
        **_job(run.workload),
        other="; ".join(_words(run)),
        complete=True,
    )
    return row, tuple(_unsaid(row, run))


def rows_text(rows: Iterable[tuple[Stated, Measured]]) -> str:
    """The table of some rows as CSV, what is not known left empty."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    for stated, measured in rows:
        writer.writerow(_cell(getattr(half, field.name)) for half in (stated, measured) for field in fields(half))
    return file.getvalue()


def _cell(value: object) -> str:
    if value is None or (not isinstance(value, bool) and value in (0, "")):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def _dimensions(model: Model) -> dict[str, Any]:
    """Columns of the model: those of its last layer, whose like most layers are."""
    layer = model.layers[-1]
    attention, experts = layer.attention, layer.experts
    block = experts.expert if experts else layer.mlp
    return {
        "model": model.name,
        "params_b": model.parameters / 1e9,
        "layers": model.num_hidden_layers,
        "hidden": model.hidden_size,
        "heads": attention.num_attention_heads,
        "kv_heads": attention.num_key_value_heads,
        "ffn_hidden": layer.mlp.intermediate_size if layer.mlp else 0,
        "mlp": "swiglu" if block and block.gated else "gelu",
        "vocab": model.vocab_size,
        "tied_embeddings": model.tie_word_embeddings,
        "experts": experts.num_experts if experts else 0,
        "experts_topk": experts.experts_per_token if experts else 0,
        "moe_ffn_hidden": experts.expert.intermediate_size if experts else 0,
    }


def _job(workload: Workload) -> dict[str, Any]:
    return {
        "seq_len": workload.seq_len,
        "global_batch": workload.global_batch_size,
        "precision_compute": workload.precision,
        "precision_state": workload.state,
        "method": workload.method,
        "optimizer": workload.optimizer,
        "dropout": workload.dropout,
        "flash_attention": workload.attention,
    }


def _words(run: Configuration) -> Iterator[str]:
    """What has no column of its own, in the words that are looked for in `other`."""
    model, workload, plan = run.model, run.workload, run.plan
    dense = sum(1 for layer in model.layers if not layer.experts)
    if model.has_experts and dense:
        yield f"{dense} dense layer{'s' if dense > 1 else ''}"
    if any(layer.attention.latent for layer in model.layers):
        yield LATENT
    if workload.method != "full":
        yield f"lora r{workload.lora_rank}"
    if plan.sharding == Sharding.ZERO3_KEEP:
        yield KEEPS_GATHERED[0]
    if plan.context_kind == ContextKind.ULYSSES:
        yield "cp a2a"
    if plan.async_tp:
        yield "async tp"


def _unsaid(row: Stated, run: Configuration) -> Iterator[str]:
    """What comes out otherwise when the row is read again."""
    try:
        made, _ = configured(completed(row)[0])
    except (SkippedRun, SpecError) as error:
        yield f"a table cannot hold this run: {error}"
        return
    for field in fields(Plan):
        own, read = int(getattr(run.plan, field.name)), int(getattr(made.plan, field.name))
        if own != read:
            yield f"{field.name} {own} is read as {read}"
    if made.workload != run.workload:
        yield "the job is read otherwise (optimizer, adapters or attention have no word in the table)"
    if abs(made.model.parameters / run.model.parameters - 1) > 0.01:
        yield f"the model is read with {made.model.parameters / 1e9:.3g} B parameters"
    if made.cluster.node.link_bandwidth != run.cluster.node.link_bandwidth:
        yield f"the links inside a node are read as {made.cluster.node.link}"
