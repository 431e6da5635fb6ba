"""plan.json: a plan with the question that it answers and what was predicted of it (documented in docs/plan.md)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from planner.errors import FileFormatError, SpecError
from planner.spec.cluster import Cluster
from planner.spec.codec import content_hash, from_plain, to_plain
from planner.spec.json_files import json_text, read_json, write_json
from planner.spec.model import Model
from planner.spec.plan import Plan
from planner.spec.profile import Profile
from planner.spec.read_node import check_node
from planner.spec.stack import Stack
from planner.spec.workload import Workload

SCHEMA_VERSION = 1
FILE_NAME = "plan.json"
DEGREES = (
    "tp",
    "pp",
    "cp",
    "ep",
    "expert_tp",
    "dp_shard",
    "dp_replicate",
    "micro_batch_size",
    "num_microbatches",
    "virtual_stages",
)
NO_PLAN = "it is no plan.json; beside a model's config.json, name a CLUSTER such as 2xdgx-h100"


@dataclass(frozen=True)
class ProfileReference:
    """A profile by name and content: another hash means that the prediction was made with other efficiencies."""

    name: str
    hash: str
    level: str

    @classmethod
    def of(cls, profile: Profile) -> ProfileReference:
        """The reference to a profile."""
        return cls(name=profile.name, hash=content_hash(profile), level=profile.level)


@dataclass(frozen=True)
class PlanFile:
    """What commands hand to each other: a plan, its inputs in full, and the prediction.

    `prediction` has the keys of one entry of `plans` in the JSON of `planner recommend`, apart from `plan`;
    `command` repeats the question that the plan answers.
    """

    plan: Plan
    model: Model
    cluster: Cluster
    workload: Workload
    stack: Stack
    profile: ProfileReference
    prediction: Mapping[str, Any] = field(default_factory=dict)
    command: str = ""
    planner_version: str = ""


def write_plan_file(contents: PlanFile, folder: Path) -> Path:
    """Write plan.json into a folder (made if missing) and return its path. Raises FileFormatError if it cannot."""
    path = folder / FILE_NAME
    try:
        write_json(path, _plain(contents))
    except OSError as error:
        raise FileFormatError(f"cannot be written: {error.strerror}", where=str(path)) from error
    return path


def plan_file_text(contents: PlanFile) -> str:
    """What `write_plan_file` writes."""
    return json_text(_plain(contents))


def _plain(contents: PlanFile) -> dict[str, Any]:
    names = [field.name for field in fields(contents)]
    return {"schema_version": SCHEMA_VERSION} | {name: to_plain(getattr(contents, name)) for name in names}


def read_plan_file(path: Path) -> PlanFile:
    """The contents of a plan.json.

    Raises FileFormatError for a file that cannot be read, is no plan, is of another schema version, or whose degrees do
    not multiply to the cluster's size.
    """
    data = read_json(path, schema_version=SCHEMA_VERSION, hint=NO_PLAN)
    del data["schema_version"]
    prediction = data.pop("prediction", {})
    if not isinstance(prediction, dict) or not _is_json(prediction):
        raise FileFormatError("should be an object of finite numbers", where=f"{path}: prediction")
    contents = from_plain(PlanFile, data, where=str(path))
    for name in DEGREES:
        if getattr(contents.plan, name) < 1:
            raise FileFormatError("must be at least 1", where=f"{path}: plan.{name}")
    try:
        for i, pool in enumerate(contents.cluster.pools):
            check_node(pool.node, where=f"{path}: cluster.pools[{i}].node")
    except SpecError as error:
        raise FileFormatError(str(error)) from error
    ranks, world_size = contents.plan.world_size, contents.cluster.world_size
    if ranks != world_size:
        raise FileFormatError(f"the plan is for {ranks} ranks but the cluster has {world_size}", where=str(path))
    return replace(contents, prediction=prediction)


def _is_json(value: Any) -> bool:
    """Whether it can be written as JSON again: Python reads NaN and Infinity, which JSON has not."""
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        return False
    return True
