"""plan.json: a plan with the question that it answers and what was predicted of it (documented in docs/plan.md)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from planner.errors import FileFormatError
from planner.spec.cluster import Cluster
from planner.spec.codec import content_hash, from_plain, to_plain
from planner.spec.model import Model
from planner.spec.plan import Plan
from planner.spec.profile import Profile
from planner.spec.stack import Stack
from planner.spec.workload import Workload

SCHEMA_VERSION = 1
FILE_NAME = "plan.json"


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
    names = [field.name for field in fields(contents)]
    plain = {name: to_plain(getattr(contents, name)) for name in names}
    text = json.dumps({"schema_version": SCHEMA_VERSION} | plain, indent=2, allow_nan=False) + "\n"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise FileFormatError(f"cannot be written: {error.strerror}", where=str(path)) from error
    return path


def read_plan_file(path: Path) -> PlanFile:
    """The contents of a plan.json.

    Raises FileFormatError for a file that cannot be read, is no plan, is of a newer schema, or whose degrees do not
    multiply to the cluster's size.
    """
    data = _read_json(path)
    version = data.pop("schema_version", None)
    if version != SCHEMA_VERSION:
        raise FileFormatError(
            f"schema_version {version!r} is not {SCHEMA_VERSION}: not a plan.json of this planner", where=str(path)
        )
    prediction = data.pop("prediction", {})
    contents = from_plain(PlanFile, data, where=str(path))
    ranks, world_size = contents.plan.world_size, contents.cluster.world_size
    if ranks != world_size:
        raise FileFormatError(f"the plan is for {ranks} ranks but the cluster has {world_size}", where=str(path))
    return replace(contents, prediction=prediction)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FileFormatError(f"cannot be read: {error.strerror}", where=str(path)) from error
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"is not JSON: {error}", where=str(path)) from error
    if not isinstance(data, dict):
        raise FileFormatError(f"must be an object, not a {type(data).__name__}", where=str(path))
    return data
