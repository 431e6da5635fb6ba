"""Conditions of a legal plan: each a mask over plan columns, for what the docstring says."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import and_

import numpy as np

from planner.quantities import Column
from planner.search.layers import dealt_evenly
from planner.search.problem import Problem
from planner.spec.plan import ContextKind, Int, Offload, Plan, Schedule, Sharding

Mask = bool | Column


def all_hold(masks: Iterable[Mask]) -> Mask:
    """Where every mask is true."""
    return reduce(and_, masks, True)


def _all_divide(degree: Int, sizes: Iterable[int]) -> Mask:
    """Where the degree divides every size."""
    return all_hold(size % degree == 0 for size in sizes)


def tp_divides_ranks(plans: Plan, problem: Problem) -> Mask:
    """Groups of equal size."""
    return problem.world_size % plans.tp == 0


def tp_divides_heads(plans: Plan, problem: Problem) -> Mask:
    """Every rank computes whole query heads."""
    return _all_divide(plans.tp, problem.heads)


def tp_suits_kv_heads(plans: Plan, problem: Problem) -> Mask:
    """Whole key-value heads on every rank, or each copied to as many ranks.

    Source: Megatron-LM, where num_query_groups must be a multiple or a divisor of tensor_model_parallel_size.
    """
    return all_hold((kv % plans.tp == 0) | (plans.tp % kv == 0) for kv in problem.kv_heads)


def tp_divides_hidden(plans: Plan, problem: Problem) -> Mask:
    """Rows of the output projections."""
    return problem.hidden_size % plans.tp == 0


def tp_divides_intermediate(plans: Plan, problem: Problem) -> Mask:
    """Columns of the dense (or shared-expert) feed-forward blocks."""
    return _all_divide(plans.tp, problem.intermediate_sizes)


def qlora_has_no_tp(plans: Plan, problem: Problem) -> Mask:
    """4-bit weights are quantised in blocks of the whole matrix: trainers shard or replicate them, not cut them."""
    return (problem.method != "qlora") | (np.asarray(plans.tp) == 1)


def qlora_has_no_pp(plans: Plan, problem: Problem) -> Mask:
    """Trainers of 4-bit models build the whole model on each rank before they shard it."""
    return (problem.method != "qlora") | (np.asarray(plans.pp) == 1)


def pp_divides_ranks(plans: Plan, problem: Problem) -> Mask:
    """Stages of as many ranks each."""
    return problem.world_size % plans.pp == 0


def every_stage_has_a_layer(plans: Plan, problem: Problem) -> Mask:
    """At least one layer on each pipeline rank."""
    return plans.pp <= problem.num_layers


def encoder_decoder_has_no_pp(plans: Plan, problem: Problem) -> Mask:
    """Every decoder layer reads the encoder's output, which no pipeline here carries along."""
    return (not problem.encoder_decoder) | (np.asarray(plans.pp) == 1)


def encoder_decoder_has_no_cp(plans: Plan, problem: Problem) -> Mask:
    """Context parallelism here divides one sequence, not an encoder's and a decoder's."""
    return (not problem.encoder_decoder) | (np.asarray(plans.cp) == 1)


def cp_divides_ranks(plans: Plan, problem: Problem) -> Mask:
    """Context groups of equal size."""
    return problem.world_size % plans.cp == 0


def cp_divides_sequence(plans: Plan, problem: Problem) -> Mask:
    """As many tokens on each rank."""
    return problem.seq_len % plans.cp == 0


def context_kind_where_cp(plans: Plan, problem: Problem) -> Mask:
    """A kind of context parallelism exactly where there is any."""
    return (np.asarray(plans.context_kind) == ContextKind.NONE) == (np.asarray(plans.cp) == 1)


def two_parts_balance_causal_mask(plans: Plan, problem: Problem) -> Mask:
    """Under a causal mask a rank takes one part of 2 x cp from the front and one from the back (zig-zag).

    Source: Llama 3 (arXiv 2407.21783), section 3.3.2, for the gather; the ring is balanced alike.
    """
    zigzag = (problem.seq_len % (2 * plans.cp) == 0) | (not problem.causal)
    return ~np.isin(plans.context_kind, (ContextKind.RING, ContextKind.ALL_GATHER)) | zigzag


def ring_has_fused_attention(plans: Plan, problem: Problem) -> Mask:
    """Partial results are merged by the log-sum-exp that only fused kernels return."""
    return (np.asarray(plans.context_kind) != ContextKind.RING) | (problem.attention != "math")


def ulysses_divides_heads(plans: Plan, problem: Problem) -> Mask:
    """Inside attention a rank holds all tokens of some whole heads: cp x tp divides query and key-value heads.

    Source: DeepSpeed-Ulysses (arXiv 2309.14509), section 3.
    """
    whole = _all_divide(plans.cp * plans.tp, (*problem.heads, *problem.kv_heads))
    return (np.asarray(plans.context_kind) != ContextKind.ULYSSES) | whole


def dense_model_has_no_ep(plans: Plan, problem: Problem) -> Mask:
    """No experts to divide."""
    return problem.has_experts | (np.asarray(plans.ep) == 1)


def dense_model_has_no_expert_tp(plans: Plan, problem: Problem) -> Mask:
    """No experts to divide."""
    return problem.has_experts | (np.asarray(plans.expert_tp) == 1)


def ep_divides_experts(plans: Plan, problem: Problem) -> Mask:
    """As many whole experts on each rank."""
    return (not problem.has_experts) | (problem.num_experts % plans.ep == 0)


def expert_tp_is_one_or_tp(plans: Plan, problem: Problem) -> Mask:
    """An expert is whole or divided over the tensor group."""
    return (not problem.has_experts) | (plans.expert_tp == 1) | (plans.expert_tp == plans.tp)


def expert_tp_divides_expert(plans: Plan, problem: Problem) -> Mask:
    """Columns of one expert."""
    return _all_divide(plans.expert_tp, problem.expert_sizes)


def experts_fit_their_ranks(plans: Plan, problem: Problem) -> Mask:
    """Expert groups lie inside dp_shard x cp x tp.

    Source: torchtitan (its mesh: dp_shard x cp x tp = expert shards x ep) and Megatron-LM's expert groups.
    """
    return (plans.dp_shard * plans.cp * plans.tp) % (plans.ep * plans.expert_tp) == 0


def all_ranks_are_used(plans: Plan, problem: Problem) -> Mask:
    """The degrees multiply to the number of accelerators."""
    return plans.world_size == problem.world_size


def dp_divides_ranks(plans: Plan, problem: Problem) -> Mask:
    """Replicas of equal size."""
    return problem.world_size % plans.dp == 0


def dp_divides_batch(plans: Plan, problem: Problem) -> Mask:
    """As many sequences for every replica."""
    return problem.global_batch_size % plans.dp == 0


def micro_batch_divides_batch(plans: Plan, problem: Problem) -> Mask:
    """Whole micro-batches."""
    return problem.global_batch_size % (plans.micro_batch_size * plans.dp) == 0


def micro_batches_make_the_batch(plans: Plan, problem: Problem) -> Mask:
    """Global batch = micro-batch x micro-batches x data-parallel ranks."""
    return plans.global_batch_size == problem.global_batch_size


def sharding_has_a_group(plans: Plan, problem: Problem) -> Mask:
    """Somebody to shard with."""
    return (np.asarray(plans.sharding) == Sharding.NONE) | (plans.shard_group > 1)


def zero2_reduces_at_once(plans: Plan, problem: Problem) -> Mask:
    """ZeRO-2 hands gradients over after every backward; a pipeline has to keep them until its last micro-batch.

    Source: DeepSpeed's pipeline engine refuses stages above 1 (issues 823 and 1110). Parameters sharded as FSDP does
    it are legal in a pipeline, gathered once or for each micro-batch.
    """
    return (np.asarray(plans.sharding) != Sharding.ZERO2) | (plans.pp == 1)


def zero2_has_no_replicas(plans: Plan, problem: Problem) -> Mask:
    """ZeRO-2 shards over all data-parallel ranks: no trainer has a hybrid form of it (of ZeRO-1 and 3 they have)."""
    return (np.asarray(plans.sharding) != Sharding.ZERO2) | (plans.dp_replicate == 1)


def sequence_parallel_has_a_group(plans: Plan, problem: Problem) -> Mask:
    """Sequence parallelism divides what tensor parallelism leaves whole."""
    return (np.asarray(plans.sequence_parallel) == 0) | (plans.tp > 1)


def sequence_parallel_divides_sequence(plans: Plan, problem: Problem) -> Mask:
    """As many tokens of a rank's part of the sequence on each rank of the tensor group."""
    return (np.asarray(plans.sequence_parallel) == 0) | (problem.seq_len // plans.cp % plans.tp == 0)


def whole_experts_need_sequence_parallel(plans: Plan, problem: Problem) -> Mask:
    """Under TP without sequence parallelism all ranks would send the same tokens to the experts.

    Source: Megatron-LM and NeMo require sequence parallelism where experts meet tensor parallelism.
    """
    divided_alike = (plans.ep == 1) & (plans.expert_tp == plans.tp)
    return (not problem.has_experts) | divided_alike | (np.asarray(plans.sequence_parallel) == 1) | (plans.tp == 1)


def async_tp_needs_sequence_parallel(plans: Plan, problem: Problem) -> Mask:
    """Asynchronous TP overlaps the gathers and scatters of sequence parallelism."""
    return (np.asarray(plans.async_tp) == 0) | (np.asarray(plans.sequence_parallel) == 1)


def schedule_where_stages(plans: Plan, problem: Problem) -> Mask:
    """A schedule exactly where there is a pipeline."""
    return (np.asarray(plans.schedule) == Schedule.NONE) == (np.asarray(plans.pp) == 1)


def chunks_where_interleaved(plans: Plan, problem: Problem) -> Mask:
    """Several chunks a rank exactly where the schedule interleaves them."""
    return (np.asarray(plans.schedule) == Schedule.INTERLEAVED) == (np.asarray(plans.virtual_stages) > 1)


def interleaving_fills_rounds(plans: Plan, problem: Problem) -> Mask:
    """Interleaving passes micro-batches in rounds of pp.

    Source: Narayanan et al. 2021 (arXiv 2104.04473), section 2.2.
    """
    return (np.asarray(plans.schedule) != Schedule.INTERLEAVED) | (plans.num_microbatches % plans.pp == 0)


def chunks_are_even(plans: Plan, problem: Problem) -> Mask:
    """Chunks of equal length, embedding and head counted as nothing or as one layer each."""
    return (plans.virtual_stages == 1) | dealt_evenly(problem.num_layers, plans.pp, plans.virtual_stages)


def ends_leave_layers_for_the_rest(plans: Plan, problem: Problem) -> Mask:
    """The stages between the first and the last have a layer each."""
    rest = problem.num_layers - plans.first_stage_layers - plans.last_stage_layers
    return rest >= np.maximum(np.asarray(plans.pp) - 2, 0)


def offload_needs_one_owner(plans: Plan, problem: Problem) -> Mask:
    """A host updates the states that only its rank holds: they are sharded, or there is one data-parallel rank."""
    owned = (np.asarray(plans.sharding) != Sharding.NONE) | (plans.dp * plans.cp == 1)
    return (np.asarray(plans.offload) == Offload.NONE) | owned


def offload_all_streams_layers(plans: Plan, problem: Problem) -> Mask:
    """Parameters come in layer by layer where they are gathered layer by layer, or on a single rank; no pipeline."""
    streams = (np.asarray(plans.sharding) == Sharding.ZERO3) | (plans.dp * plans.cp == 1)
    return (np.asarray(plans.offload) != Offload.ALL) | (streams & (plans.pp == 1))
