"""The rules of legality: each condition with the field that it judges and its reason in words.

No rules, because they always hold: the vocabulary, which every trainer pads to a multiple of `tp`; recomputation,
which any layer allows; the layers of a stage, which `layers.end_layers` deals out for any number of stages up to
that of the layers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from planner.quantities import Column
from planner.search import conditions as where
from planner.search import limits as has
from planner.search.problem import Problem
from planner.spec.plan import Plan


@dataclass(frozen=True)
class Rule:
    """`holds` is the mask of plans that obey; `axis` the plan's field (or `dp`) to change where it does not.

    `words` is the reason, with names of fields of the plan, of the problem and of the stack's limits in braces.
    `alone` says that the axis and the problem decide it, whatever the rest of the plan.
    """

    axis: str
    holds: Callable[[Plan, Problem], bool | Column]
    words: str
    alone: bool = True


TENSOR = (
    Rule("tp", has.tensor_parallel, "{stack} has no tensor parallelism"),
    Rule("tp", has.kv_heads_on_one_rank_each, "{stack} does not copy {kv_heads} key-value heads to {tp}"),
    Rule("tp", has.adapters_along("tp"), "{stack} has no tensor parallelism with {method}"),
    Rule("tp", where.tp_divides_heads, "{tp} does not divide {heads} attention heads"),
    Rule("tp", where.tp_suits_kv_heads, "{tp} is neither divisor nor multiple of {kv_heads} key-value heads"),
    Rule("tp", where.tp_divides_hidden, "{tp} does not divide the hidden size {hidden_size}"),
    Rule("tp", where.tp_divides_intermediate, "{tp} does not divide the intermediate size {intermediate_sizes}"),
    Rule("tp", where.tp_divides_ranks, "{tp} does not divide {world_size} GPUs"),
    Rule("tp", where.qlora_has_no_tp, "{tp} would cut QLoRA's 4-bit matrices"),
)
PIPELINE = (
    Rule("pp", has.pipeline, "{stack} has no pipeline parallelism"),
    Rule("pp", has.tied_pipeline, "{stack} has no pipeline parallelism where embedding and head are one matrix"),
    Rule("pp", has.adapters_along("pp"), "{stack} has no pipeline parallelism with {method}"),
    Rule("pp", where.pp_divides_ranks, "{pp} does not divide {world_size} GPUs"),
    Rule("pp", where.every_stage_has_a_layer, "{pp} makes more stages than the {num_layers} layers"),
    Rule("pp", where.encoder_decoder_has_no_pp, "{pp}: an encoder-decoder model is not divided into stages"),
    Rule("pp", where.qlora_has_no_pp, "{pp}: a QLoRA model is not divided into stages"),
)
CONTEXT = (
    Rule("cp", has.context_parallel, "{stack} has no context parallelism"),
    Rule("cp", has.adapters_along("cp"), "{stack} has no context parallelism with {method}"),
    Rule("cp", where.cp_divides_ranks, "{cp} does not divide {world_size} GPUs"),
    Rule("cp", where.cp_divides_sequence, "{cp} does not divide {seq_len} tokens"),
    Rule("cp", where.encoder_decoder_has_no_cp, "{cp}: an encoder-decoder model's sequences are not divided"),
)
CONTEXT_KIND = (
    Rule("context_kind", has.context_kind, "{stack} has no {context_kind}"),
    Rule("context_kind", where.context_kind_where_cp, "{context_kind} does not go with {cp}", alone=False),
    Rule("context_kind", where.ring_has_fused_attention, "ring attention needs a fused kernel, not {attention}"),
    Rule(
        "cp",
        where.two_parts_balance_causal_mask,
        "{context_kind}: {cp} needs two parts a rank of {seq_len} tokens",
        alone=False,
    ),
    Rule(
        "cp",
        where.ulysses_divides_heads,
        "Ulysses {cp} x {tp} does not divide {heads} attention heads and {kv_heads} key-value heads",
        alone=False,
    ),
)
EXPERTS = (
    Rule("ep", has.expert_parallel, "{stack} has no expert parallelism"),
    Rule("ep", has.adapters_along("ep"), "{stack} has no expert parallelism with {method}"),
    Rule("expert_tp", has.divided_experts, "{stack} does not divide single experts"),
    Rule(
        "expert_tp",
        has.experts_by_ep_or_tp,
        "{stack} divides experts by {tp} where they are not dealt out, not {expert_tp} with {ep}",
        alone=False,
    ),
    Rule("expert_tp", has.adapters_along("expert_tp"), "{stack} does not divide single experts with {method}"),
    Rule("ep", where.dense_model_has_no_ep, "{ep}: a dense model has no experts"),
    Rule("expert_tp", where.dense_model_has_no_expert_tp, "{expert_tp}: a dense model has no experts"),
    Rule("ep", where.ep_divides_experts, "{ep} does not divide {num_experts} experts"),
    Rule("expert_tp", where.expert_tp_is_one_or_tp, "{expert_tp} is neither 1 nor the experts' {tp}", alone=False),
    Rule("expert_tp", where.expert_tp_divides_expert, "{expert_tp} does not divide experts of {expert_sizes} columns"),
    Rule(
        "ep", where.experts_fit_their_ranks, "{ep} x {expert_tp} does not divide {dp_shard} x {cp} x {tp}", alone=False
    ),
)
RANKS = (
    Rule("dp", where.dp_divides_ranks, "{dp} does not divide {world_size} GPUs"),
    Rule("dp_shard", where.dp_divides_ranks, "{dp_shard} does not divide {world_size} GPUs"),
    Rule("dp_replicate", where.dp_divides_ranks, "{dp_replicate} does not divide {world_size} GPUs"),
    Rule("dp", where.all_ranks_are_used, "{tp} x {pp} x {cp} x {dp} is not {world_size} GPUs", alone=False),
    Rule("dp", where.dp_divides_batch, "{dp} does not divide the global batch of {global_batch_size} sequences"),
)
SHARDING = (
    Rule("sharding", has.sharding, "{stack} has no {sharding}"),
    Rule(
        "sharding",
        has.sharding_with_replicas,
        "with {dp_replicate} {stack} has no sharding but {replicated_shardings}",
        alone=False,
    ),
    Rule(
        "sharding",
        has.sharding_with_tensor_parallel,
        "with {tp} {stack} has no sharding but {tensor_shardings}",
        alone=False,
    ),
    Rule("sharding", has.unsharded_group, "{stack} shards where {dp_shard} x {cp} is above 1", alone=False),
    Rule(
        "sharding", has.sharding_in_pipeline, "with {pp} {stack} has no sharding but {pipeline_shardings}", alone=False
    ),
    Rule("sharding", where.sharding_has_a_group, "{sharding} needs {dp_shard} x {cp} above 1", alone=False),
    Rule(
        "sharding", where.zero2_reduces_at_once, "ZeRO-2 cannot keep gradients over {pp}'s micro-batches", alone=False
    ),
    Rule("sharding", where.zero2_has_no_replicas, "ZeRO-2 has no hybrid form: {dp_replicate} is above 1", alone=False),
)
SEQUENCE = (
    Rule("sequence_parallel", has.sequence_parallel, "{stack} has no sequence parallelism"),
    Rule(
        "sequence_parallel", where.sequence_parallel_has_a_group, "sequence parallelism needs {tp} above 1", alone=False
    ),
    Rule(
        "sequence_parallel",
        where.sequence_parallel_divides_sequence,
        "sequence parallelism: {tp} does not divide {seq_len} tokens / {cp}",
        alone=False,
    ),
    Rule(
        "sequence_parallel",
        where.whole_experts_need_sequence_parallel,
        "{ep}, {expert_tp} with {tp} need sequence parallelism",
        alone=False,
    ),
    Rule(
        "sequence_parallel",
        has.unscattered_experts,
        "experts of {stack} with {tp} need sequence parallelism",
        alone=False,
    ),
    Rule("async_tp", has.async_tp, "{stack} has no async TP"),
    Rule("async_tp", where.async_tp_needs_sequence_parallel, "async TP needs sequence parallelism", alone=False),
)
OFFLOAD = (
    Rule("offload", has.offload, "{stack} has no {offload}"),
    Rule(
        "offload",
        has.offload_of_sharding,
        "with {offload} {stack} has no sharding but {offload_shardings}",
        alone=False,
    ),
    Rule("offload", where.offload_needs_one_owner, "{offload} needs sharded states, not {sharding}", alone=False),
    Rule(
        "offload",
        where.offload_all_streams_layers,
        "{offload} needs zero3 and one stage, not {sharding}, {pp}",
        alone=False,
    ),
)
SYNCHRONISATION = (
    Rule("gradient_sync", has.gradient_sync, "{stack} has no {gradient_sync}"),
    Rule(
        "gradient_sync",
        has.gradient_sync_in_pipeline,
        "with {pp} {stack} has no gradient sync but {pipeline_syncs}",
        alone=False,
    ),
)
BATCH = (
    Rule(
        "micro_batch_size",
        where.micro_batch_divides_batch,
        "{micro_batch_size} x {dp} does not divide the global batch of {global_batch_size} sequences",
    ),
    Rule(
        "num_microbatches",
        where.micro_batches_make_the_batch,
        "{micro_batch_size} x {num_microbatches} x {dp} is not the global batch of {global_batch_size} sequences",
        alone=False,
    ),
)
SCHEDULE = (
    Rule("schedule", has.schedule, "{stack} has no {schedule}"),
    Rule("schedule", where.schedule_where_stages, "{schedule} does not go with {pp}", alone=False),
    Rule("virtual_stages", where.chunks_where_interleaved, "{schedule} does not go with {virtual_stages}", alone=False),
    Rule(
        "virtual_stages",
        where.chunks_are_even,
        "{pp} x {virtual_stages} do not divide {num_layers} layers",
        alone=False,
    ),
    Rule(
        "num_microbatches",
        has.short_pipeline,
        "1F1B of {stack} needs a micro-batch for each stage: {num_microbatches} with {pp}",
        alone=False,
    ),
    Rule(
        "num_microbatches",
        where.interleaving_fills_rounds,
        "{num_microbatches} to interleave: no multiple of {pp}",
        alone=False,
    ),
)
STAGES = (
    Rule(
        "first_stage_layers",
        where.ends_leave_layers_for_the_rest,
        "{first_stage_layers} and {last_stage_layers} of {num_layers} leave too few for {pp}",
        alone=False,
    ),
    Rule(
        "first_stage_layers",
        has.stage_split,
        "{stack} does not deal {num_layers} layers to {pp} with {first_stage_layers} and {last_stage_layers}",
        alone=False,
    ),
)
RECOMPUTATION = (Rule("recompute", has.recompute, "{stack} has no {recompute}"),)
ORDER = (Rule("rank_order", has.rank_order, "{stack} has no {rank_order}"),)
WHOLE = (
    Rule(
        "rank_order",
        has.order_of_experts,
        "{stack} has {rank_order} with {pp} only where {tp} x {cp} is the experts' {ep} x {expert_tp}",
        alone=False,
    ),
    Rule(
        "gradient_sync",
        has.gradient_sync_of_replicas,
        "for plain replicas {stack} has no gradient sync but {replica_syncs}",
        alone=False,
    ),
    Rule(
        "virtual_stages",
        has.gathered_chunks,
        "{sharding}: {stack} keeps {gathered_chunks} chunks of a rank gathered, not {virtual_stages}",
        alone=False,
    ),
)
"""What only a whole plan shows."""

RULES: tuple[Rule, ...] = (
    *(TENSOR + PIPELINE + CONTEXT + CONTEXT_KIND + EXPERTS + RANKS + SHARDING),
    *(SEQUENCE + OFFLOAD + SYNCHRONISATION + BATCH + SCHEDULE + STAGES),
    *(RECOMPUTATION + ORDER + WHOLE),
)
