"""Time of one micro-batch on one pipeline rank: its layers with what of their communication is not hidden."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from planner.cost.overlap import exposed_time
from planner.estimate.host import layer_launches, passes, waits_for_collectives, with_host
from planner.estimate.layer_communication import LayerCommunication
from planner.estimate.layer_time import LayerTime
from planner.estimate.setting import Setting
from planner.estimate.stages import Stages
from planner.estimate.synchronisation import weight_gathers
from planner.quantities import Column, Count, Scalar, Seconds
from planner.spec.plan import Plan, Recompute
from planner.spec.stack import Stack


@dataclass(frozen=True)
class MicroBatchTime:
    """Seconds of one layer and micro-batch, shape (kinds, rows).

    `forward` and `weight_gradient` are parts of the total, for schedules that split it.
    """

    matmul: Seconds
    attention: Seconds
    elementwise: Seconds
    recompute: Seconds
    tp_exposed: Seconds
    cp_exposed: Seconds
    ep_exposed: Seconds
    dp_exposed: Seconds
    host: Seconds
    forward: Seconds
    weight_gradient: Seconds

    TERMS = (
        "matmul", "attention", "elementwise", "recompute",
        "tp_exposed", "cp_exposed", "ep_exposed", "dp_exposed", "host",
    )  # fmt: skip

    @cached_property
    def total(self) -> Seconds:
        """Forward and backward."""
        return sum((getattr(self, name) for name in self.TERMS), start=0.0)


def layer_micro_batch(setting: Setting, plans: Plan, compute: LayerTime, wire: LayerCommunication) -> MicroBatchTime:
    """One layer: compute, communication that compute does not hide, and the host where it is slower than both.

    Tensor parallelism waits for its collectives unless async_tp runs them beside the matrix products; the ring of
    context parallelism runs beside attention, ZeRO-3's gathers and reductions beside the whole layer. Attention waits
    for keys and values that are gathered.
    """
    penalty = setting.profile.overlap_penalty
    again = passes(plans)
    ring_backward = exposed_time(compute.attention_backward, 2 * wire.ring, penalty=penalty)
    ring_forward = exposed_time(compute.attention, wire.ring, penalty=penalty)
    tp_forward = _tp_exposed(plans, compute.matmul, wire.tp, penalty)
    regather = input_regathers(plans, setting.stack) * exposed_time(
        compute.input_gradient, wire.regather, penalty=penalty
    )
    forward = compute.forward + tp_forward + ring_forward + wire.ulysses + wire.key_gather + wire.ep
    tp = again * tp_forward + regather
    cp = (again - 1) * ring_forward + ring_backward + again * wire.ulysses
    cp = cp + key_gathers(plans, setting.stack) * wire.key_gather + wire.key_scatter
    ep = again * wire.ep
    both = compute.forward + compute.backward + compute.recompute + tp + cp + ep
    dp_forward, dp_backward = _data_parallel_exposed(setting, plans, forward, both - forward, wire)
    on_device, on_device_backward = forward + dp_forward, both - forward + dp_backward
    launches, launches_backward = layer_launches(setting, plans)
    host = with_host(setting, on_device, launches) - on_device
    return MicroBatchTime(
        matmul=compute.matmul + compute.input_gradient + compute.weight_gradient,
        attention=compute.attention + compute.attention_backward,
        elementwise=compute.elementwise + compute.elementwise_backward,
        recompute=compute.recompute,
        tp_exposed=tp,
        cp_exposed=cp,
        ep_exposed=ep,
        dp_exposed=dp_forward + dp_backward,
        host=host + with_host(setting, on_device_backward, launches_backward) - on_device_backward,
        forward=on_device + host,
        weight_gradient=compute.weight_gradient,
    )


def input_regathers(plans: Plan, stack: Stack) -> Count:
    """How often a micro-batch gathers the inputs of tensor parallelism beyond its passes over the layer.

    For the weights' gradients, unless they were kept since forward; in what selective recomputation does again.
    """
    operators = (np.asarray(plans.recompute) == Recompute.SELECTIVE) & (stack.selective_operators > 0)
    return 1 + operators - stack.keeps_gathered_inputs


def key_gathers(plans: Plan, stack: Stack) -> Count:
    """How often a micro-batch gathers keys and values.

    In forward, in what recomputation does of it again, and in backward where they are not kept until then.
    """
    recompute = np.asarray(plans.recompute)
    operators = (recompute == Recompute.SELECTIVE) & (stack.selective_operators > 0)
    return 2 + (recompute == Recompute.FULL) + operators - stack.keeps_gathered_keys


def _tp_exposed(plans: Plan, matmul: Seconds, tp: Seconds, penalty: Scalar) -> Seconds:
    return np.where(np.asarray(plans.async_tp) > 0, exposed_time(matmul, tp, penalty=penalty), tp)


def _data_parallel_exposed(
    setting: Setting, plans: Plan, forward: Seconds, backward: Seconds, wire: LayerCommunication
) -> tuple[Seconds, Seconds]:
    """ZeRO-3's gathers, and reductions where each micro-batch has one, beside forward and backward."""
    first, again = weight_gathers(plans)
    waits = waits_for_collectives(setting, plans)
    penalty = waits + (1 - waits) * setting.profile.overlap_penalty
    return (
        exposed_time(forward, first * wire.gather, penalty=penalty),
        exposed_time(backward, again * wire.gather + wire.reduce, penalty=penalty),
    )


@dataclass(frozen=True)
class StageTime:
    """One micro-batch on each pipeline rank: seconds of shape (roles, rows), and what they are made of.

    `forward` and `weight_gradient` are parts of `total`, for schedules that split it. `layer` has shape (kinds, rows),
    `head` (rows,) and `root` (roles, rows).
    """

    stage: Stages
    layer: MicroBatchTime
    head: Seconds
    root: Seconds
    total: Column
    forward: Column
    weight_gradient: Column

    @classmethod
    def of(cls, stage: Stages, layer: MicroBatchTime, *, head: Seconds, root: Seconds) -> StageTime:
        """Layers of each role summed, with the head on the last and ZeRO-3's communication of embedding and head."""

        def summed(part: Seconds) -> Column:
            return np.einsum("krn,kn->rn", stage.layers, part)

        total = summed(layer.total) + stage.has_head * head + root
        return cls(stage, layer, head, root, total, summed(layer.forward), summed(layer.weight_gradient))

    def terms(self, role: Column) -> dict[str, Column]:
        """Every term of the rank with the given role in each row; they add up to its total."""
        row = np.arange(len(role))
        layers = self.stage.layers[:, role, row]
        terms = {name: (layers * getattr(self.layer, name)).sum(axis=0) for name in MicroBatchTime.TERMS}
        terms["dp_exposed"] = terms["dp_exposed"] + self.root[role, row]
        return terms | {"head": self.stage.has_head[role, row] * self.head}
