"""Bytes that one rank sends in a step, by the group that they travel in: what a counter at its network port reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields

import numpy as np

from planner.cost import collectives as cost
from planner.estimate.communication import Message
from planner.estimate.messages import (
    LayerMessages,
    Messages,
    embedding_messages,
    gathered_weight_bytes,
    gradient_messages,
    head_messages,
    layer_messages,
    root_messages,
    stage_gather,
    stage_message,
    tied_message,
    weight_messages,
)
from planner.estimate.parameters import trained_parameters
from planner.estimate.records import Role
from planner.estimate.setting import Job
from planner.estimate.stage_time import input_regathers, key_gathers
from planner.estimate.stages import Stages, stages
from planner.estimate.synchronisation import keeps_weights, reduces_once, weight_gathers
from planner.quantities import Bytes, Column, Count
from planner.rows import Rows
from planner.spec.model import Model
from planner.spec.plan import Int, Plan, Recompute, Sharding
from planner.spec.stack import Stack
from planner.spec.workload import Workload

BytesSent = Callable[[Bytes, Count], Bytes]
LIBRARIES: Mapping[str, Mapping[str, BytesSent]] = {
    "nccl": {
        "all_reduce": cost.all_reduce_bytes,
        "all_gather": cost.gather_bytes,
        "reduce_scatter": cost.gather_bytes,
        "all_to_all": cost.all_to_all_bytes,
        "send": cost.send_bytes,
    },
    "gloo": {
        "all_reduce": cost.all_reduce_bytes,
        "all_gather": cost.gather_bytes,
        "reduce_scatter": cost.all_reduce_bytes,
        "all_to_all": cost.all_to_all_bytes,
        "send": cost.send_bytes,
    },
}
"""Library -> what a rank of a ring sends in each collective. Gloo reduces everything before it scatters."""


@dataclass(frozen=True, eq=False)
class GroupBytes(Rows):
    """Bytes that one rank sends to the others of its group in one step, by collective. Headers not counted."""

    all_reduce: Bytes = 0.0
    all_gather: Bytes = 0.0
    reduce_scatter: Bytes = 0.0
    all_to_all: Bytes = 0.0
    send: Bytes = 0.0

    @property
    def total(self) -> Bytes:
        """All collectives together. A rank receives as much as it sends, but for the ends of a pipeline."""
        return sum((getattr(self, field.name) for field in fields(self)), start=0.0)


@dataclass(frozen=True, eq=False)
class Volume(Rows):
    """What one rank sends in a step in the groups of `Links`, on the pipeline rank `role` (a Role).

    Of a group of n ranks, l of them on a node, what leaves the node is one rank's bytes where they go around a ring,
    and l (n-l)/(n-1) times that in an all-to-all.
    """

    tp: GroupBytes
    cp: GroupBytes
    ep: GroupBytes
    expert_tp: GroupBytes
    pp: GroupBytes
    dp_shard: GroupBytes
    dp_replicate: GroupBytes
    expert_shard: GroupBytes
    expert_replicate: GroupBytes
    role: Int

    GROUPS = ("tp", "cp", "ep", "expert_tp", "pp", "dp_shard", "dp_replicate", "expert_shard", "expert_replicate")

    @property
    def total(self) -> Bytes:
        """All groups together."""
        return sum((getattr(self, name).total for name in self.GROUPS), start=0.0)


def communication_volume(
    model: Model, plans: Plan, workload: Workload, stack: Stack, *, role: Role | None = None, library: str = "nccl"
) -> Volume:
    """Bytes that a rank sends per step; scalars for a scalar plan.

    `role` is the pipeline rank (Role.FIRST also without a pipeline), else the one that sends most; `library` a key of
    LIBRARIES. Not counted: norms of gradients, the loss reported, headers.
    """
    if plans.is_scalar:
        return communication_volume(model, plans.columns(), workload, stack, role=role, library=library)[0]
    sent = _sent(Job(model, workload, stack), plans, LIBRARIES[library])
    totals = sum(sent.values(), start=np.zeros((len(Role), len(plans))))
    chosen = totals.argmax(axis=0) if role is None else np.full(len(plans), int(role))
    rows = np.arange(len(plans))
    groups: dict[str, dict[str, Bytes]] = {name: {} for name in Volume.GROUPS}
    for (group, collective), values in sent.items():
        groups[group][collective] = values[chosen, rows]
    return Volume(**{name: GroupBytes(**values) for name, values in groups.items()}, role=chosen)


def _sent(job: Job, plans: Plan, library: Mapping[str, BytesSent]) -> dict[tuple[str, str], Column]:
    """Bytes of shape (roles, rows) by group and collective."""
    sizes, nothing = _group_sizes(plans), np.zeros((len(Role), len(plans)))
    sent: dict[tuple[str, str], Column] = {}
    for message, times in _step_messages(job, plans):
        collective, share = (message.part_of, 0.5) if message.part_of else (message.collective, 1.0)
        calls = times * message.calls * share
        one = library[collective](message.size, sizes[message.group])
        sent[message.group, collective] = sent.get((message.group, collective), nothing) + calls * one
    return sent


def _group_sizes(plans: Plan) -> dict[str, Int]:
    """Ranks of each axis' groups: the sizes of Links."""
    return {
        "tp": plans.tp,
        "cp": plans.cp,
        "ep": plans.ep,
        "expert_tp": plans.expert_tp,
        "pp": np.minimum(plans.pp, 2),
        "dp_shard": plans.shard_group,
        "dp_replicate": plans.dp_replicate,
        "expert_shard": plans.expert_shard_group,
        "expert_replicate": plans.dp_replicate,
    }


def _step_messages(job: Job, plans: Plan) -> Iterator[tuple[Message, Count]]:
    """Every message with how often a step sends it, of shape (roles, rows)."""
    stage, m = stages(job.model, plans), plans.num_microbatches
    for (layer, _), count in zip(job.model.layer_kinds, stage.layers, strict=True):
        for message, passes in _layer_passes(job, layer_messages(job, layer, plans), plans):
            yield message, m * count * passes
    yield stage_message(job, plans), m * _sends(plans, stage)
    yield stage_gather(job, plans), m * _sends(plans, stage)
    yield from _all(embedding_messages(job, plans), m * stage.has_embedding)
    yield from _all(head_messages(job, plans), m * stage.has_head)
    yield tied_message(job, plans), np.maximum(stage.has_embedding, stage.has_head)
    yield from _data_parallel(job, plans, stage)


def _all(messages: Messages, times: Count) -> Iterator[tuple[Message, Count]]:
    return ((message, times) for message in messages)


def _layer_passes(job: Job, sent: LayerMessages, plans: Plan) -> Iterator[tuple[Message, Count]]:
    """A layer's messages with how often a micro-batch sends them: forward, backward, and what is computed again.

    Backward mirrors forward: what was gathered is scattered, what was reduced is copied.
    """
    stack, recompute = job.stack, np.asarray(plans.recompute)
    full = (recompute == Recompute.FULL).astype(float)
    operators = (recompute == Recompute.SELECTIVE) * (stack.selective_operators > 0)
    again, skipped = full + operators, stack.early_stop / sent.scatter_outputs.calls
    yield sent.gather_inputs, 2 + full + input_regathers(plans, stack)
    yield sent.scatter_outputs, 2 + full * (1 - skipped)
    yield sent.reduce_outputs, 2 + again * (1 - skipped)
    yield sent.ring, 3 + full
    yield from _all((*sent.exchange, *sent.experts), 2 + again)
    yield sent.key_gather, key_gathers(plans, stack)
    yield sent.key_scatter, 1
    yield from _all(sent.weights, sum(weight_gathers(plans)))
    yield from _all(sent.gradients, np.where(reduces_once(plans), 0, 1))


def _sends(plans: Plan, stage: Stages) -> Column:
    """Tensors that a pipeline rank sends per micro-batch: activations on, gradients back, from each chunk.

    The last chunk has no activations to send, the first no gradients. As many arrive: the other way round.
    """
    chunks = np.asarray(plans.virtual_stages)
    activations, gradients = chunks - (stage.rank == plans.pp - 1), chunks - (stage.rank == 0)
    return np.asarray((activations + gradients) * (np.asarray(plans.pp) > 1))


def _data_parallel(job: Job, plans: Plan, stage: Stages) -> Iterator[tuple[Message, Count]]:
    """Embedding and head with every micro-batch; all gradients and all weights where that is once per step."""
    trained = trained_parameters(job.model, plans, job.workload, stage)
    once, code = reduces_once(plans), np.asarray(plans.sharding)
    gather, gradients = root_messages(job, plans, trained.root)
    yield gather, plans.num_microbatches
    yield from _all(gradients, np.where(once, 0, plans.num_microbatches))
    yield from _all(gradient_messages(job, plans, trained.dense, trained.experts), np.where(once, 1, 0))
    updated = (code == Sharding.ZERO1) | (code == Sharding.ZERO2) | keeps_weights(plans)
    each = gathered_weight_bytes(job.workload)
    yield from _all(weight_messages(job, trained.dense * each, trained.experts * each), np.where(updated, 1, 0))
