"""The table that a simulation plays, for one plan: every block of every stage with its times and bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property

import numpy as np

from planner.cost.activations import logit_bytes
from planner.cost.states import reduction_bytes
from planner.estimate.activations import element_bytes, layer_activations
from planner.estimate.layer_communication import layer_communication
from planner.estimate.layer_time import layer_time
from planner.estimate.memory import gathered_inputs, gradients_held
from planner.estimate.messages import boundary_bytes, gathered_weight_bytes
from planner.estimate.once_per_step import once_per_step_by_rank
from planner.estimate.parameters import layer_parameters, local_parameters
from planner.estimate.records import Moment
from planner.estimate.segments import layer_segments
from planner.estimate.setting import Setting
from planner.estimate.shapes import rank_tokens, sequence_split
from planner.estimate.stage_seconds import HEAD_PARTS
from planner.estimate.stages import Layout, all_ranks, layout
from planner.estimate.states import training_state
from planner.estimate.synchronisation import keeps_weights, weight_gathers
from planner.quantities import Bytes, Column, Count, Scalar
from planner.spec.cluster import Cluster
from planner.spec.durations import Block, Durations, Segment
from planner.spec.model import Model
from planner.spec.plan import Plan, Schedule, Sharding
from planner.spec.profile import Profile
from planner.spec.stack import Stack
from planner.spec.workload import Workload
from planner.topology.links import GroupLinks, Links

GROUPS: Mapping[str, str] = {"tp": "tp", "head": "tp", "cp": "cp", "ep": "ep", "pp": "pp", "dp": "dp_shard"}
"""Axis of a transfer -> the group in Links whose links it uses."""


def durations(
    model: Model,
    plan: Plan,
    workload: Workload,
    cluster: Cluster,
    links: Links,
    *,
    profile: Profile,
    stack: Stack,
    dealt: Layout | None = None,
) -> Durations:
    """The table of one plan (scalars), its layers `dealt` to stages as the plan says unless given.

    Raises SpecError where the accelerator lacks the precision.
    """
    dealt = dealt or layout(len(model.layer_pattern), plan)
    return _Table(Setting.of(model, workload, cluster, profile, stack), plan, links, dealt).durations()


class _Table:
    """One plan in its setting, as columns of one row; per rank where it says so: shape (ranks, 1)."""

    def __init__(self, setting: Setting, plan: Plan, links: Links, dealt: Layout) -> None:
        self.setting, self.plan, self.links, self.dealt = setting, plan, links, dealt
        self.plans = plans = plan.columns()
        self.ranks = all_ranks(setting.model, plan, dealt)
        self.state = training_state(setting.model, plans, setting.workload, setting.stack, self.ranks)
        self.once = once_per_step_by_rank(setting, plans, links.columns(), self.ranks)
        self.wire = layer_communication(setting, plans, links.columns())

    def durations(self) -> Durations:
        """The whole table."""
        setting, plan = self.setting, self.plan
        state = self.state
        kept = state.root_gathered * keeps_weights(self.plans)
        return Durations(
            stages=self._stages(),
            rank_of=self.dealt.rank_of,
            num_microbatches=int(plan.num_microbatches),
            schedule=Schedule(int(plan.schedule)).name.lower(),
            send=float(self.wire.send[0]),
            optimizer=_each(self.once.optimizer + self.once.offload),
            fixed=float(setting.profile.fixed_time),
            penalty=float(setting.profile.overlap_penalty),
            overlap_gradients=setting.stack.overlap_gradients > 0,
            links={axis: _link(getattr(self.links, group)) for axis, group in GROUPS.items()},
            state={
                "weights": _each(state.weights),
                "optimizer": _each(state.optimizer),
                "gradients": _each(self._persistent_gradients),
                "gather_buffers": _each(state.buckets + kept),
                "communication_buffers": self._of_every_rank(self._communication_buffers()),
                "reserve": _each(state.gradients - self._persistent_gradients),
                "context": self._of_every_rank(setting.stack.context),
            },
            optimizer_bytes=_each(state.optimizer_step),
            allocator_slack=float(setting.stack.allocator_slack),
        )

    def _of_every_rank(self, amount: Bytes) -> tuple[Bytes, ...]:
        return (float(amount),) * int(self.plan.pp)

    def _communication_buffers(self) -> Bytes:
        """Those of the library, and two of a pipeline for each neighbour."""
        library = self.setting.stack.communication_buffers * (self.plan.world_size > 1)
        return library + 4 * self._boundary * (self.plan.pp > 1)

    @cached_property
    def _boundary(self) -> Bytes:
        """The hidden states between two layers on one rank."""
        return float((boundary_bytes(self.setting, self.plans) / sequence_split(self.plans))[0])

    def _stages(self) -> tuple[tuple[Block, ...], ...]:
        """The blocks of every stage: its layers, the embedding before the first and the head behind the last."""
        pattern, dealt = self.setting.model.layer_pattern, self.dealt
        stages = [
            [
                self._once(self._layers[kind], rank, self._layer_parameters[kind])
                for kind in pattern[begin : begin + size]
            ]
            for begin, size, rank in zip(dealt.starts, dealt.sizes, dealt.rank_of, strict=True)
        ]
        stages[0].insert(0, self._embedding())
        stages[-1].append(self._head())
        return tuple(map(tuple, stages))

    @cached_property
    def _layers(self) -> list[Block]:
        """The block of each kind of layer, without what happens once per step."""
        setting, plans = self.setting, self.plans
        compute = layer_time(setting, plans)
        kept = layer_activations(setting.model, plans, setting.workload, setting.stack)
        first, again = (float(count[0]) for count in weight_gathers(plans))
        buffers = float(gathered_inputs(setting.model, plans, setting.workload, setting.stack)[0])
        blocks = []
        for kind, parameters in enumerate(self._layer_parameters):
            run = layer_segments(setting, plans, kind, compute, self.wire)
            gather = float(self.wire.gather[kind, 0])
            blocks.append(
                Block(
                    name="layer" if len(self._layer_parameters) == 1 else f"layer of kind {kind + 1}",
                    forward=run.forward,
                    backward=run.backward,
                    weight=run.weight,
                    gather=first * gather,
                    gather_again=again * gather,
                    reduce=float(self.wire.reduce[kind, 0]),
                    kept=float(kept.kept[kind, 0]),
                    working=float((kept.whole - kept.kept)[kind, 0]) + buffers,
                    **self._buffers(parameters),
                )
            )
        return blocks

    @cached_property
    def _layer_parameters(self) -> list[Count]:
        """Parameters of each kind of layer on a rank, before data-parallel sharding."""
        model = self.setting.model
        return [float(sum(layer_parameters(kind, model.hidden_size, self.plan))) for kind, _ in model.layer_kinds]

    def _buffers(self, parameters: Count) -> dict[str, Bytes]:
        """ZeRO-3's unsharded weights and gradients of a block; those that a pipeline keeps are held all along."""
        setting, plan = self.setting, self.plan
        sharded = plan.sharding >= Sharding.ZERO3
        element, reduced = element_bytes(setting.workload), setting.stack.reduce_bytes
        reducing = reduction_bytes(parameters, gradient_bytes=element, reduce_bytes=reduced, buffers=1.0)
        passing = sharded and not keeps_weights(self.plans)[0]
        return {
            "gathered": parameters * gathered_weight_bytes(setting.workload) * passing,
            "reducing": reducing * sharded * (setting.workload.method == "full"),
        }

    def _embedding(self) -> Block:
        """The embedding: no compute to speak of. Where it shares a rank with the head, ZeRO-3 gathers both at once."""
        own = self._root[self._first] * (1 - self._head_share)
        return self._once(self._with_root(Block("embedding", (), ()), self._first), self._first, own)

    def _head(self) -> Block:
        """Output projection and loss."""
        setting, plans, last = self.setting, self.plans, self.dealt.rank_of[-1]
        compute = float(layer_time(setting, plans).head[0]) / HEAD_PARTS
        tokens = rank_tokens(plans, setting.workload)
        logits = logit_bytes(tokens, setting.model.vocab_size / plans.tp, bytes_per_logit=setting.stack.logit_bytes)
        block = Block(
            name="head",
            forward=(Segment("head", compute),),
            backward=(Segment("head", compute), Segment("head", transfer=float(self.wire.head[0]), axis="head")),
            weight=(Segment("head", compute),),
            kept=2 * self._boundary,
            logits=float(logits[0]),
        )
        own = self._root[last] * (self._head_share if last == self._first else 1.0)
        return self._once(block if last == self._first else self._with_root(block, last), last, own)

    @property
    def _first(self) -> int:
        """The rank with the embedding."""
        return self.dealt.rank_of[0]

    @property
    def _head_share(self) -> Scalar:
        """Part of the parameters of embedding and head that is the head's, where both are on one rank."""
        together = self.dealt.rank_of[-1] == self._first and not self.setting.model.tie_word_embeddings
        return 0.5 * together

    def _with_root(self, block: Block, rank: int) -> Block:
        """A block with the gather and reduction of embedding and head, which nothing runs beside."""
        gather, both = (float(part[rank, 0]) for part in (self.once.root_gather, self.once.root))
        return replace(block, gather=gather, reduce=both - gather, ahead=False, **self._buffers(self._root[rank]))

    def _once(self, block: Block, rank: int, parameters: Count) -> Block:
        """A block with its share, by parameters, of what its rank does once per step or brings from the host."""
        share = parameters / max(self._on_rank[rank], 1.0)
        reduce, gather, streamed = (
            float(part[rank, 0]) * share for part in (self.once.reduce, self.once.gather, self.once.streamed)
        )
        return replace(
            block,
            reduce_once=reduce,
            gather_once=gather,
            gather=block.gather + streamed / 2,
            gather_again=block.gather_again + streamed / 2,
            gradients=share * float((self.state.gradients - self._persistent_gradients)[rank, 0]),
        )

    @cached_property
    def _persistent_gradients(self) -> Column:
        """Gradients held before the first backward, by rank."""
        return gradients_held(self.plans, self.setting.stack, self.state)[Moment.FORWARD_END]

    @cached_property
    def _root(self) -> list[Count]:
        """Parameters of embedding and head on each rank, if they are trained or gathered."""
        return [float(count) for count in local_parameters(self.setting.model, self.plans, self.ranks).root[:, 0]]

    @cached_property
    def _on_rank(self) -> list[Count]:
        """Parameters of all blocks of each rank."""
        layers = np.einsum("krn,k->rn", self.ranks.layers, np.array(self._layer_parameters))[:, 0]
        return [float(count + root) for count, root in zip(layers, self._root, strict=True)]


def _each(column: Column) -> tuple[float, ...]:
    """A column of shape (ranks, 1) as figures."""
    return tuple(float(value) for value in np.asarray(column)[:, 0])


def _link(links: GroupLinks) -> str:
    """Which link the groups of an axis use: the network between domains where they cross it; "" for a group of one."""
    if links.size == 1:
        return ""
    return "domain" if links.size == links.local else "network"
