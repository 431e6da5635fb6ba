"""Peak device memory: the fullest pipeline rank at the fullest moment of a step, itemised."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from planner.cost import pipeline
from planner.cost.activations import logit_bytes, waiting_bytes
from planner.estimate.activations import LayerActivations, element_bytes, layer_activations
from planner.estimate.factor import LAYER, STAGES, STATE, distinct_plans
from planner.estimate.records import MemoryUse, Moment, Role
from planner.estimate.shapes import rank_tokens, sequence_split
from planner.estimate.stages import Stages, stages
from planner.estimate.states import State, training_state
from planner.quantities import Bytes, Column
from planner.spec.model import Model
from planner.spec.plan import Plan, Schedule, Sharding
from planner.spec.stack import Stack
from planner.spec.workload import Workload

LEAD_ALONE, LEAD_OF_TWO, LEAD_IN_PIPELINE = 0.86, 0.05, 0.57
LEAD_OF_FEW, FEW = 0.62, 2
LEAD_OF_MANY, MANY_RANKS, NODE = 0.11, 512, 8
NOTHING = MemoryUse(**dict.fromkeys((*MemoryUse.ITEMS, "host"), 0.0), role=0, moment=0)
OUTSIDE = ("communication_buffers", "context", "reserve")
"""Items that the framework's allocator does not hand out."""


def memory_use(
    model: Model, plans: Plan, workload: Workload, stack: Stack, *, roles: Sequence[Role] = tuple(Role)
) -> MemoryUse:
    """Memory of every plan at its peak; scalars for a scalar plan.

    The peak is the maximum over the events of a step (`Moment`) and the pipeline ranks that can be the fullest
    (`roles`), not the sum of each item's maximum.
    """
    columns = plans.columns()
    parts = _parts(model, columns, workload, stack)
    total, allocated = (_summed(parts, name)[:, list(roles)] for name in ("total", "allocated"))
    moments, count, rows = total.shape
    moment, place = np.divmod(total.reshape(moments * count, rows).argmax(axis=0), count)
    use = replace(
        _pick(parts, moment, np.array(roles)[place]),
        allocated=allocated.max(axis=(0, 1)),
        waiting=waiting(model, columns, workload, stack),
    ).columns()
    return use[0] if plans.is_scalar else use


def peak_memory(model: Model, plans: Plan, workload: Workload, stack: Stack) -> Bytes:
    """The peak of every plan of columns alone, up to rounding: a third of the work of `memory_use`."""
    return _summed(_parts(model, plans, workload, stack), "total").max(axis=(0, 1))


def memory_timeline(model: Model, plan: Plan, workload: Workload, stack: Stack) -> dict[tuple[Role, Moment], MemoryUse]:
    """Every rank role and moment of one plan: what `memory_use` takes the maximum of."""
    parts = _parts(model, plan.columns(), workload, stack)
    return {(role, moment): _pick(parts, np.array([moment]), np.array([role]))[0] for role in Role for moment in Moment}


def waiting(model: Model, plans: Plan, workload: Workload, stack: Stack) -> Bytes:
    """Freed blocks that the allocator may not reuse yet, where reductions over a tensor-parallel group scatter."""
    buffers = stack.waiting_buffers * head_start(plans)
    whole = waiting_bytes(rank_tokens(plans, workload), model.hidden_size, buffers, element=element_bytes(workload))
    return np.where((np.asarray(plans.sequence_parallel) > 0) & (np.asarray(plans.tp) > 1), whole, 0.0)


def head_start(plans: Plan) -> Column:
    """Share of its queue by which the host leads the device, as seen in nanotron's scaling sweep.

    A host that waits for the other stage after every micro-batch (two stages) has no lead; one of many stages receives
    what was sent long before. A lead builds up over micro-batches. Several hundred ranks wait for each other, unless
    tensor groups across nodes keep all devices busy.
    """
    pp, tp, few = np.asarray(plans.pp), np.asarray(plans.tp), np.asarray(plans.num_microbatches) <= FEW
    by_stages = np.select([pp == 1, pp == 2], [LEAD_ALONE, LEAD_OF_TWO], LEAD_IN_PIPELINE)
    many = (np.asarray(plans.world_size) >= MANY_RANKS) & ((pp > 2) | ((pp == 1) & (tp <= NODE)))
    return by_stages * np.where(few, LEAD_OF_FEW, 1.0) * np.where(many, LEAD_OF_MANY, 1.0)


def peak_by_rank(model: Model, plans: Plan, workload: Workload, stack: Stack, ranks: Stages) -> Column:
    """Peak of each of the ranks in `ranks`, whatever layers they hold, shape (ranks, rows); `plans` are columns."""
    parts = (items(model, plans, workload, stack, ranks) for items in (_state_items, _batch_items))
    state, batch = (_Part(each, np.arange(len(plans))).total for each in parts)
    return (state + batch).max(axis=0)


@dataclass(frozen=True)
class _Part:
    """Some of memory's items for distinct combinations, and for each plan its combination.

    Items have shape (moments, roles, combinations) or broadcast to it; those of the other parts are 0.
    """

    items: MemoryUse
    row: Column

    @cached_property
    def allocated(self) -> Column:
        """All items that the framework's allocator hands out; shape (moments, roles, combinations)."""
        return self._sum(name for name in MemoryUse.ITEMS if name not in OUTSIDE)

    @cached_property
    def total(self) -> Column:
        """All items; shape (moments, roles, combinations)."""
        return self.allocated + self._sum(OUTSIDE)

    def _sum(self, names: Iterable[str]) -> Column:
        return sum((getattr(self.items, name) for name in names), start=np.zeros((len(Moment), 1, 1)))

    def at(self, name: str, moment: Column, role: Column) -> Bytes:
        """One item of every plan at its moment and role."""
        item = self.allocated if name == "allocated" else getattr(self.items, name)
        return np.broadcast_to(item, self.total.shape)[moment, role, self.row] if np.ndim(item) else item


def _summed(parts: tuple[_Part, _Part], name: str) -> Column:
    """A sum of items of both parts, shape (moments, roles, rows)."""
    state, batch = (np.take(getattr(part, name), part.row, axis=-1) for part in parts)
    return state + batch


def _pick(parts: Sequence[_Part], moment: Column, role: Column) -> MemoryUse:
    """All items of every plan at the chosen moment and role."""
    names = (*MemoryUse.ITEMS, "host")
    chosen = {name: sum((part.at(name, moment, role) for part in parts), start=0.0) for name in names}
    allocated = sum((part.at("allocated", moment, role) for part in parts), start=0.0)
    return MemoryUse(**chosen, role=role, moment=moment, allocated=allocated).columns()


def _parts(model: Model, plans: Plan, workload: Workload, stack: Stack) -> tuple[_Part, _Part]:
    """What follows from the training state, and what from the micro-batches: each depends on few columns."""
    communicates, accumulates = plans.world_size > 1, plans.num_microbatches > 1
    by_state = distinct_plans(plans, STATE, communicates, accumulates)
    frozen_shards = (np.asarray(plans.sharding) >= Sharding.ZERO3) & (workload.method != "full")
    by_batch = distinct_plans(plans, (*LAYER, *STAGES, "schedule", "num_microbatches"), frozen_shards)
    some, others = by_state.of(plans), by_batch.of(plans)
    return (
        _Part(_state_items(model, some, workload, stack, stages(model, some)), by_state.index),
        _Part(_batch_items(model, others, workload, stack, stages(model, others)), by_batch.index),
    )


def _state_items(model: Model, plans: Plan, workload: Workload, stack: Stack, stage: Stages) -> MemoryUse:
    """Weights, gradients, optimizer states and what ZeRO-3 gathers of them."""
    state = training_state(model, plans, workload, stack, stage)
    gradients = gradients_held(plans, stack, state)
    gathered = _by_moment(
        {
            Moment.FORWARD_END: state.gathered,
            Moment.LOSS: state.root_gathered,
            Moment.BACKWARD: state.gathered + state.reducing,
            Moment.REDUCE: state.root_reducing,
        }
    )
    optimizer = _by_moment({Moment.OPTIMIZER: state.optimizer_step}) + state.optimizer
    slack = (stack.allocator_slack - 1) * (state.weights + gradients + optimizer + gathered)
    return replace(
        NOTHING,
        weights=state.weights,
        gradients=gradients + _by_moment({Moment.REDUCE: state.backward}),
        optimizer=optimizer,
        gather_buffers=gathered + state.buckets,
        communication_buffers=np.where(plans.world_size > 1, stack.communication_buffers, 0.0),
        context=stack.context,
        reserve=slack + (state.gradients - gradients),
        host=state.host,
    )


def _batch_items(model: Model, plans: Plan, workload: Workload, stack: Stack, stage: Stages) -> MemoryUse:
    """Activations, logits and buffers as large as activations."""
    layers = layer_activations(model, plans, workload, stack)
    held = _held_activations(model, plans, workload, stage, layers)
    working = held + _working_layer(plans, layers)
    others = held * (1 - 1 / micro_batches_in_flight(plans, stage))
    working += _frozen_input_gradients(plans, workload, stack, stage, layers)
    activations = _by_moment(
        {Moment.FORWARD_END: held, Moment.LOSS: held, Moment.BACKWARD: working}
        | ({Moment.REDUCE: others} if stack.backward_gradient_bytes else {})
    )
    logits = _by_moment({Moment.LOSS: _logits(model, plans, workload, stack, stage)})
    gathered = np.broadcast_to(gathered_inputs(model, plans, workload, stack), held.shape)
    gathered = _by_moment(dict.fromkeys((Moment.FORWARD_END, Moment.LOSS, Moment.BACKWARD), gathered))
    return replace(
        NOTHING,
        activations=activations,
        logits=logits,
        gather_buffers=gathered,
        communication_buffers=np.where(plans.pp > 1, 4 * _boundary(model, plans, workload), 0.0),
        reserve=(stack.allocator_slack - 1) * (activations + logits + gathered) + stack.fragmented_flight * others,
    )


def micro_batches_in_flight(plans: Plan, stage: Stages) -> Column:
    """Forward passes held at once on each role, in units of the rank's whole stage; shape (roles, rows)."""
    m, pp, v, rank = plans.num_microbatches, plans.pp, plans.virtual_stages, stage.rank
    schedule = np.asarray(plans.schedule)
    by_schedule = {
        Schedule.GPIPE: pipeline.gpipe_in_flight(m),
        Schedule.ONE_F_ONE_B: pipeline.one_f_one_b_in_flight(m, pp, rank),
        Schedule.INTERLEAVED: pipeline.interleaved_in_flight(m, pp, rank, virtual_stages=v),
        Schedule.ZB_H1: pipeline.zb_h1_in_flight(m, pp),
    }
    return np.select(
        [schedule == kind for kind in by_schedule],
        [np.broadcast_to(value, rank.shape) for value in by_schedule.values()],
        1.0,
    )


def _held_activations(model: Model, plans: Plan, workload: Workload, stage: Stages, layers: LayerActivations) -> Column:
    """Kept activations of all micro-batches in flight, shape (roles, rows), and the final norm's input and output."""
    per_micro_batch = np.einsum("krn,kn->rn", stage.layers, layers.kept)
    head = 2 * _boundary(model, plans, workload) * stage.has_head
    return per_micro_batch * micro_batches_in_flight(plans, stage) + head


def _working_layer(plans: Plan, layers: LayerActivations) -> Column:
    """What the layer under backward holds beyond what was kept of it (all that is computed again)."""
    return (layers.whole - layers.kept).max(axis=0)


def _frozen_input_gradients(
    plans: Plan, workload: Workload, stack: Stack, stage: Stages, layers: LayerActivations
) -> Column:
    """Gradients of the inputs of all layers but those at the ends, held where frozen weights are sharded."""
    frozen = (np.asarray(plans.sharding) >= Sharding.ZERO3) & (workload.method != "full")
    inputs = np.einsum("krn,kn->rn", stage.layers, layers.input)
    inner = np.maximum(1 - 2 / np.maximum(stage.layers.sum(axis=0), 1), 0)
    return inputs * inner * frozen * stack.frozen_input_gradients


def _logits(model: Model, plans: Plan, workload: Workload, stack: Stack, stage: Stages) -> Column:
    tokens = rank_tokens(plans, workload)
    return stage.has_head * logit_bytes(tokens, model.vocab_size / plans.tp, bytes_per_logit=stack.logit_bytes)


def gradients_held(plans: Plan, stack: Stack, state: State) -> Column:
    """Gradients held at each moment: all of them from the first backward on where buffers persist or accumulate."""
    sharded = np.asarray(plans.sharding) >= Sharding.ZERO3
    accumulating = np.asarray(plans.num_microbatches) > 1
    persist = np.where(sharded, accumulating, np.maximum(accumulating, stack.gradients_persist))
    before = dict.fromkeys((Moment.FORWARD_END, Moment.LOSS, Moment.BACKWARD), state.gradients * persist)
    return _by_moment({**before, Moment.REDUCE: state.gradients, Moment.OPTIMIZER: state.gradients})


def gathered_inputs(model: Model, plans: Plan, workload: Workload, stack: Stack) -> Bytes:
    """Unsharded inputs that tensor with sequence parallelism holds."""
    gathered = rank_tokens(plans, workload) * model.hidden_size * element_bytes(workload)
    return np.where(np.asarray(plans.sequence_parallel) > 0, stack.gathered_inputs * gathered, 0.0)


def _by_moment(parts: Mapping[Moment, Column]) -> Column:
    """Parts of shape (roles, rows) at their moments, 0 at the others; shape (moments, roles, rows)."""
    filled = np.zeros((len(Moment), *next(iter(parts.values())).shape))
    for moment, part in parts.items():
        filled[moment] = part
    return filled


def _boundary(model: Model, plans: Plan, workload: Workload) -> Bytes:
    """The tensor between two layers, on one rank; a pipeline has two buffers for each neighbour."""
    return rank_tokens(plans, workload) * model.hidden_size * element_bytes(workload) / sequence_split(plans)
