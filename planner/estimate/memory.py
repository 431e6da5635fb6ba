"""Peak device memory: the fullest pipeline rank at the fullest moment of a step, itemised."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace

import numpy as np

from planner.cost import pipeline
from planner.cost.activations import logit_bytes
from planner.estimate.activations import LayerActivations, element_bytes, layer_activations
from planner.estimate.records import MemoryUse, Moment, Role
from planner.estimate.shapes import rank_tokens, sequence_split
from planner.estimate.stages import Stages, stages
from planner.estimate.states import State, training_state
from planner.quantities import Bytes, Column
from planner.spec.model import Model
from planner.spec.plan import Plan, Schedule, Sharding
from planner.spec.stack import Stack
from planner.spec.workload import Workload


def memory_use(model: Model, plans: Plan, workload: Workload, stack: Stack) -> MemoryUse:
    """Memory of every plan at its peak; scalars for a scalar plan.

    The peak is the maximum over the events of a step (`Moment`) and the pipeline ranks that can be the fullest
    (`Role`), not the sum of each item's maximum.
    """
    columns = plans.columns()
    items = _moments(model, columns, workload, stack)
    total = sum(getattr(items, name) for name in MemoryUse.ITEMS)
    moments, roles, rows = total.shape
    moment, role = np.divmod(total.reshape(moments * roles, rows).argmax(axis=0), roles)
    use = _pick(items, moment, role)
    return use[0] if plans.is_scalar else use


def memory_timeline(model: Model, plan: Plan, workload: Workload, stack: Stack) -> dict[tuple[Role, Moment], MemoryUse]:
    """Every rank role and moment of one plan: what `memory_use` takes the maximum of."""
    items = _moments(model, plan.columns(), workload, stack)
    return {(role, moment): _pick(items, np.array([moment]), np.array([role]))[0] for role in Role for moment in Moment}


def _pick(items: MemoryUse, moment: Column, role: Column) -> MemoryUse:
    """The chosen moment and role of each row."""
    row = np.arange(len(moment))
    chosen = {
        f.name: np.broadcast_to(getattr(items, f.name), _shape(len(row)))[moment, role, row] for f in fields(items)
    }
    return replace(items, **(chosen | {"moment": moment, "role": role}))


def _shape(rows: int) -> tuple[int, int, int]:
    return len(Moment), len(Role), rows


def _moments(model: Model, plans: Plan, workload: Workload, stack: Stack) -> MemoryUse:
    """Items of shape (moments, roles, rows), or what broadcasts to it."""
    stage = stages(model, plans)
    state = training_state(model, plans, workload, stack, stage)
    layers = layer_activations(model, plans, workload, stack)
    held = _held_activations(model, plans, workload, stage, layers)
    gradients = _gradients(plans, stack, state)
    gathered = _gather_buffers(model, plans, workload, stack, state)
    optimizer = _by_moment({Moment.OPTIMIZER: state.optimizer_step}) + state.optimizer
    working = held + _working_layer(plans, layers)
    activations = _by_moment({Moment.FORWARD_END: held, Moment.LOSS: held, Moment.BACKWARD: working})
    logits = _by_moment({Moment.LOSS: _logits(model, plans, workload, stack, stage)})
    allocated = state.weights + gradients + optimizer + activations + logits + gathered
    return MemoryUse(
        weights=state.weights,
        gradients=gradients,
        optimizer=optimizer,
        activations=activations,
        logits=logits,
        gather_buffers=gathered,
        communication_buffers=_communication_buffers(model, plans, workload, stack),
        context=stack.context,
        reserve=(stack.allocator_slack - 1) * allocated + (state.gradients - gradients),
        host=state.host,
        role=0,
        moment=0,
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


def _logits(model: Model, plans: Plan, workload: Workload, stack: Stack, stage: Stages) -> Column:
    tokens = rank_tokens(plans, workload)
    return stage.has_head * logit_bytes(tokens, model.vocab_size / plans.tp, bytes_per_logit=stack.logit_bytes)


def _gradients(plans: Plan, stack: Stack, state: State) -> Column:
    """Gradients held at each moment: all of them from the first backward on where buffers persist or accumulate."""
    sharded = np.asarray(plans.sharding) >= Sharding.ZERO3
    accumulating = np.asarray(plans.num_microbatches) > 1
    persist = np.where(sharded, accumulating, np.maximum(accumulating, stack.gradients_persist))
    before = dict.fromkeys((Moment.FORWARD_END, Moment.LOSS, Moment.BACKWARD), state.gradients * persist)
    return _by_moment({**before, Moment.REDUCE: state.gradients, Moment.OPTIMIZER: state.gradients})


def _gather_buffers(model: Model, plans: Plan, workload: Workload, stack: Stack, state: State) -> Column:
    """Unsharded weights, gradients on their way and gathered layer inputs, by moment."""
    gathered_input = rank_tokens(plans, workload) * model.hidden_size * element_bytes(workload)
    inputs = np.where(np.asarray(plans.sequence_parallel) > 0, stack.gathered_inputs * gathered_input, 0.0)
    return _by_moment(
        {
            Moment.FORWARD_END: state.gathered + inputs,
            Moment.LOSS: state.root_gathered + inputs,
            Moment.BACKWARD: state.gathered + inputs + state.reducing,
            Moment.REDUCE: state.root_reducing,
        }
    )


def _by_moment(parts: Mapping[Moment, Column]) -> Column:
    """Parts of shape (roles, rows) at their moments, 0 at the others; shape (moments, roles, rows)."""
    filled = np.zeros((len(Moment), *next(iter(parts.values())).shape))
    for moment, part in parts.items():
        filled[moment] = part
    return filled


def _communication_buffers(model: Model, plans: Plan, workload: Workload, stack: Stack) -> Column:
    """The collectives library's buffers where there is anybody to talk to, and two per pipeline neighbour."""
    neighbours = np.where(plans.pp > 1, 4 * _boundary(model, plans, workload), 0.0)
    return np.where(plans.world_size > 1, stack.communication_buffers, 0.0) + neighbours


def _boundary(model: Model, plans: Plan, workload: Workload) -> Bytes:
    """The tensor between two layers, on one rank."""
    return rank_tokens(plans, workload) * model.hidden_size * element_bytes(workload) / sequence_split(plans)
