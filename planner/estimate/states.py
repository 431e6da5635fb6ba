"""Training state of each pipeline rank: weights, gradients, optimizer states, and what ZeRO-3 gathers of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.cost.optimizers import OPTIMIZERS, state_bytes
from planner.cost.states import gathered_bytes, held_bytes, quantized_bytes, reduction_bytes
from planner.estimate.activations import element_bytes, upcasts
from planner.estimate.parameters import LocalParameters, local_parameters, trained_parameters
from planner.estimate.stages import Stages
from planner.estimate.synchronisation import reduces_once
from planner.quantities import Bytes, Column
from planner.spec.model import Model
from planner.spec.plan import Offload, Plan, Sharding
from planner.spec.stack import Stack
from planner.spec.workload import Workload

HALF: Bytes = 2.0
SINGLE: Bytes = 4.0


@dataclass(frozen=True)
class ByteCosts:
    """Bytes per parameter: columns where they depend on the plan's sharding.

    `backward` is what a backward leaves beside the gradients held, `step` what the optimizer's step copies.
    """

    weight: Bytes
    gradient: Bytes
    optimizer: Bytes
    backward: Bytes = 0.0
    step: Bytes = 0.0


@dataclass(frozen=True)
class State:
    """Bytes of shape (roles, rows).

    `optimizer_step` are the working copies of the optimizer's step, `backward` the gradients that a backward leaves
    beside those held, `buckets` the copies of gradients that replicas reduce.
    `gathered` and `root_gathered` are ZeRO-3's unsharded weights while a layer is computed and while none is;
    `reducing` the unsharded gradients of a layer on their way, `root_reducing` of the embedding and head.
    """

    weights: Column
    gradients: Column
    optimizer: Column
    optimizer_step: Column
    backward: Column
    buckets: Column
    gathered: Column
    root_gathered: Column
    reducing: Column
    root_reducing: Column
    host: Column


def training_state(model: Model, plans: Plan, workload: Workload, stack: Stack, stages: Stages) -> State:
    """State of each role under plan columns."""
    local = local_parameters(model, plans, stages)
    trainable = LoraParameters.of(model, plans, workload, stages, local, stack=stack)
    costs = byte_costs(plans, workload, stack)
    code = np.asarray(plans.sharding)
    weights_split, optimizer_split = (np.where(code >= level, 1, 0) for level in (Sharding.ZERO3, Sharding.ZERO1))
    whole = (code == Sharding.ZERO2) & reduces_once(plans)
    gradients_split = np.where((code >= Sharding.ZERO2) & ~whole, 1, 0)

    def held(bytes_each: Bytes, divided: Column) -> Bytes:
        dense_group = np.where(divided, plans.shard_group, 1)
        expert_group = np.where(divided, plans.expert_shard_group, 1)
        dense = held_bytes(trainable.dense, bytes_each, dense_group)
        return dense + held_bytes(trainable.experts, bytes_each, expert_group)

    optimizer = held(costs.optimizer, optimizer_split)
    on_host = np.asarray(plans.offload) >= Offload.OPTIMIZER
    # ZeRO-3's fp32 shard is the master copy: with the optimizer on the host a shard in compute precision stays behind.
    master = np.where(on_host & (code >= Sharding.ZERO3), costs.weight, 0.0)
    on_device = np.where(master > 0, np.minimum(costs.weight, element_bytes(workload)), costs.weight)
    frozen, trained = trainable.frozen_bytes(plans, weights_split), held(on_device, weights_split)
    gradients = held(costs.gradient, gradients_split)
    all_on_host = np.asarray(plans.offload) == Offload.ALL
    paged = OPTIMIZERS[workload.optimizer].paged
    return State(
        weights=np.where(all_on_host, 0.0, frozen + trained),
        gradients=np.where(on_host & (code >= Sharding.ZERO2), 0.0, gradients),
        optimizer=np.where(on_host | paged, 0.0, optimizer),
        optimizer_step=np.where(on_host, 0.0, held(costs.step, optimizer_split)),
        backward=held(costs.backward, gradients_split),
        buckets=_buckets(trainable, plans, stack),
        **_zero3(local, trainable, plans, workload, stack, embedding=stages.has_embedding * model.embedding_parameters),
        host=np.where(on_host, optimizer + gradients + held(master, weights_split), optimizer * paged)
        + np.where(all_on_host, frozen + np.where(master > 0, 0.0, trained), 0.0),
    )


def _buckets(trainable: LoraParameters, plans: Plan, stack: Stack) -> Column:
    """Gradients gathered to be reduced: all of them in DDP's buckets, or two buckets of ZeRO's, in 16 bits."""
    code, trained = np.asarray(plans.sharding), trainable.dense + trainable.experts
    replicated = trained * stack.bucket_bytes * ((code < Sharding.ZERO3) & (np.asarray(plans.dp) > 1))
    divided = (code == Sharding.ZERO1) | (code == Sharding.ZERO2)
    return replicated + 2 * HALF * np.minimum(trained, stack.reduction_bucket) * divided


def byte_costs(plans: Plan, workload: Workload, stack: Stack) -> ByteCosts:
    """Bytes per trainable parameter before division."""
    states = state_bytes(workload.optimizer, workload.state)
    copies = stack.optimizer_temporary_copies
    if workload.state == "16bit":
        return ByteCosts(2.0, 2.0, states, step=2.0 * copies)
    if element_bytes(workload) == 4.0:
        return ByteCosts(4.0, 4.0, states, step=4.0 * copies)
    sharded = np.asarray(plans.sharding) >= Sharding.ZERO3
    half = workload.precision == "fp16" and stack.fp16_gradient_bytes > 0
    held = stack.fp16_gradient_bytes if half else stack.gradient_bytes
    weight = np.where(sharded, 4.0, stack.weight_bytes)
    return ByteCosts(
        weight=weight,
        gradient=np.where(sharded, 4.0, held),
        optimizer=states + np.where(sharded, 0.0, stack.master_bytes),
        backward=np.where(sharded | half, 0.0, stack.backward_gradient_bytes),
        step=copies * weight + np.where(sharded | (held >= SINGLE), 0.0, stack.step_gradient_bytes),
    )


@dataclass(frozen=True)
class LoraParameters:
    """Trainable parameters, shape (roles, rows), and beside them the frozen ones of LoRA and QLoRA with their bytes."""

    dense: Column
    experts: Column
    frozen_dense: Column
    frozen_experts: Column
    frozen_root: Column
    layer_weight_bytes: Bytes
    """Bytes per frozen parameter of a layer: 2, or about half a byte quantized."""
    root_weight_bytes: Bytes
    """Bytes per frozen parameter of embedding and head, which are not quantized."""

    @classmethod
    def of(
        cls,
        model: Model,
        plans: Plan,
        workload: Workload,
        stages: Stages,
        local: LocalParameters,
        *,
        stack: Stack,
    ) -> LoraParameters:
        """Full training has nothing frozen; with adapters everything else is."""
        trained, none = trained_parameters(model, plans, workload, stages), np.zeros_like(local.dense)
        if workload.method == "full":
            return cls(trained.dense, trained.experts, none, none, none, 0.0, 0.0)
        layer_bytes = quantized_bytes() if workload.method == "qlora" else element_bytes(workload)
        root_bytes = np.where(upcasts(plans, workload, stack), 4.0, 2.0)
        return cls(trained.dense, trained.experts, local.dense, local.experts, local.root, layer_bytes, root_bytes)

    def frozen_bytes(self, plans: Plan, divided: Column) -> Column:
        """Frozen weights held; only ZeRO-3 divides them."""
        dense = self.frozen_dense * self.layer_weight_bytes + self.frozen_root * self.root_weight_bytes
        experts = held_bytes(
            self.frozen_experts, self.layer_weight_bytes, np.where(divided, plans.expert_shard_group, 1)
        )
        return dense / np.where(divided, plans.shard_group, 1) + experts


def _zero3(
    local: LocalParameters,
    trainable: LoraParameters,
    plans: Plan,
    workload: Workload,
    stack: Stack,
    *,
    embedding: Column,
) -> dict[str, Column]:
    """ZeRO-3's transient buffers; zero under every other sharding. `embedding` are the model's, on the role with it.

    Where gradients are reduced once per step they are summed unsharded until then.
    """
    code = np.asarray(plans.sharding)
    sharded, keep, full = code >= Sharding.ZERO3, code == Sharding.ZERO3_KEEP, workload.method == "full"
    weight, reduced = element_bytes(workload), stack.reduce_bytes
    in_layers, in_root = weight if full else trainable.layer_weight_bytes, weight * local.root
    everything = local.outside_experts + local.experts
    all_weights = in_layers * (local.dense + local.experts) + in_root
    live = np.minimum(stack.live_parameters, local.dense + local.experts) * in_layers
    gathered = np.maximum(gathered_bytes(local.largest_layer, 0.0, weight_bytes=in_layers), live) + in_root
    layer = reduction_bytes(local.largest_layer, gradient_bytes=weight, reduce_bytes=reduced)
    reducing = layer + np.where(reduces_once(plans), everything * reduced, 0.0)
    root = reduction_bytes(local.root, gradient_bytes=weight, reduce_bytes=reduced, buffers=1.0)
    # The whole gradient is there beside gathered weights, the rank's part of it and the last layer's reduction.
    whole = 2 * in_root + weight * embedding + reduced * local.largest_layer
    root = np.where((np.asarray(plans.tp) > 1) & (stack.whole_embedding_gradient > 0), np.maximum(root, whole), root)
    return {
        "gathered": np.where(keep, all_weights, gathered) * sharded,
        "root_gathered": np.where(keep, all_weights, in_root) * sharded,
        "reducing": reducing * sharded * full,
        "root_reducing": root * sharded * full,
    }
