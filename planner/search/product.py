"""The two halves of a table of plans joined."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np

from planner.quantities import Column
from planner.spec.plan import PLAN_KINDS, PLAN_SWITCHES, Plan

CODES = (*PLAN_KINDS, *PLAN_SWITCHES)
"""Fields held as int8."""
BATCH_FIELDS = (
    *("micro_batch_size", "num_microbatches", "virtual_stages"),
    *("first_stage_layers", "last_stage_layers", "schedule", "recompute"),
)
MESH_FIELDS = tuple(f.name for f in fields(Plan) if f.name not in (*BATCH_FIELDS, "rank_order"))


def product(mesh: Plan, batch: Plan, orders: Column, distinct: Column) -> Plan:
    """Each mesh with each batch of its pp, cp and dp, in each of its distinct rank orders (mask of meshes x orders).

    `batch` is ordered by pp, cp and dp (held in its dp_replicate). Columns are as small as the plan's own products
    (ranks, sequences) allow. The rank order varies fastest.
    """
    mesh_class, batch_class = _classes(mesh, batch)
    starts = np.searchsorted(batch_class, mesh_class, side="left")
    batches = np.searchsorted(batch_class, mesh_class, side="right") - starts
    variants = distinct.sum(axis=1)
    of_mesh = np.repeat(np.arange(len(mesh), dtype=np.int32), batches * variants)
    before = np.cumsum(batches * variants) - batches * variants
    position = np.arange(len(of_mesh), dtype=np.int32) - before.astype(np.int32)[of_mesh]
    which, variant = np.divmod(position, variants.astype(np.int32)[of_mesh])
    of_batch = starts.astype(np.int32)[of_mesh] + which
    ranked = orders.astype(np.int8)[np.argsort(~distinct, axis=1, kind="stable")]
    most = max(int(np.max(mesh.world_size)), int(np.max(batch.global_batch_size)))
    small = np.int16 if most < 2**15 else np.int32
    mesh, batch = converted(mesh, small), converted(batch, small)
    return Plan(
        **{name: getattr(mesh, name)[of_mesh] for name in MESH_FIELDS},
        **{name: getattr(batch, name)[of_batch] for name in BATCH_FIELDS},
        rank_order=ranked[of_mesh, variant],
    )


def converted(plans: Plan, dtype: type) -> Plan:
    """The plans with counts as `dtype` and codes as int8."""
    columns: dict[str, Column] = {f.name: np.asarray(getattr(plans, f.name)) for f in fields(plans)}
    dtypes = {name: np.int8 if name in CODES else dtype for name in columns}
    return replace(plans, **{name: column.astype(dtypes[name], copy=False) for name, column in columns.items()})


def _classes(mesh: Plan, batch: Plan) -> tuple[Column, Column]:
    """A number for each row of both that says its pp, cp and data-parallel degree; ascending in the batches."""
    base = 1 + int(np.max(mesh.world_size))
    of_mesh, of_batch = ((plans.pp * base + plans.cp) * base + plans.dp for plans in (mesh, batch))
    return np.asarray(of_mesh), np.asarray(of_batch)
