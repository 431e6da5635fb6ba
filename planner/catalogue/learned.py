"""What training campaigns taught of an (accelerator, stack) pair beyond kernels and collectives timed alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from planner.catalogue.collectives import FABRICS, scaled
from planner.catalogue.names import FOLDER
from planner.quantities import Count, Scalar, Seconds, to_base
from planner.spec.profile import CollectiveFit, Profile
from planner.spec.toml_file import read_toml

PROFILES = FOLDER / "profiles"
"""One file a pair: <accelerator>/<stack>.toml."""
IN_UNITS = {"launch_time": "us", "fixed_time": "ms"}
"""Times, with the unit that their keys name."""


@dataclass(frozen=True)
class Learned:
    """Factors that make predictions meet the runs of a pair; `Profile` says what each is, scales of links apart."""

    compute_scale: Scalar
    attention_scale: Scalar
    elementwise_scale: Scalar
    overlap_penalty: Scalar
    launch_time: Seconds
    fixed_time: Seconds
    link_scale: Scalar
    """Time of collectives inside link domains over that of the same calls alone."""
    network_scale: Scalar
    """The same of the network between domains."""
    error: Scalar = 0.0
    """Standard deviation of log(measured / predicted) on the half of the runs that was not fitted, by its quantiles."""
    plan_error: Scalar = 0.0
    """The part of it that runs of one job do not share."""
    runs: Count = 0
    sources: tuple[str, ...] = ()

    @classmethod
    def of(cls, profile: Profile) -> Learned:
        """What a profile says before anything is learned."""
        names = {field.name for field in fields(Profile)} & set(FACTORS)
        return cls(**{name: getattr(profile, name) for name in names}, link_scale=1.0, network_scale=1.0)

    def applied(self, profile: Profile) -> Profile:
        """A profile with these factors, its collectives scaled."""
        own = {name: getattr(self, name) for name in FACTORS if name not in ("link_scale", "network_scale")}
        return replace(profile, **own, collectives=self._scaled(profile.collectives))

    def _scaled(self, collectives: Mapping[tuple[str, str], CollectiveFit]) -> dict[tuple[str, str], CollectiveFit]:
        def scale(kind: str) -> Scalar:
            return self.network_scale if kind.split("-")[0] in FABRICS else self.link_scale

        return {key: scaled(fit, scale(key[0])) for key, fit in collectives.items()}


FACTORS = (
    "compute_scale", "attention_scale", "elementwise_scale", "overlap_penalty", "launch_time", "fixed_time",
    "link_scale", "network_scale",
)  # fmt: skip
"""The fields of `Learned` that are fitted."""
SOFTWARE = ("elementwise_scale", "overlap_penalty", "launch_time", "fixed_time")
"""Factors that a stack takes along to other hardware."""
TYPICAL = ("compute_scale", "link_scale")
"""Factors of which campaigns agree enough to say something of others."""
ENOUGH = 10
"""Runs of a campaign that speaks for others."""


Campaigns = Mapping[tuple[str, str], Learned]
"""What was learned by (accelerator, stack)."""


@cache
def learned() -> Campaigns:
    """Everything that is known."""
    return {(path.parent.name, path.stem): read_learned(path) for path in sorted(PROFILES.glob("*/*.toml"))}


def read_learned(path: Path) -> Learned:
    """One pair's file. Raises FileFormatError where it is no TOML."""
    entry: dict[str, Any] = read_toml(path)
    times = {name: to_base(entry.pop(f"{name}_{unit}"), unit) for name, unit in IN_UNITS.items()}
    return Learned(**entry | times | {"sources": tuple(entry["sources"])})


def typical(start: Learned, known: Campaigns) -> Learned:
    """Factors where nothing was learned: of kernels and links the median campaign's, the rest as it starts."""
    speaking = [one for one in known.values() if one.runs >= ENOUGH]
    medians: dict[str, Any] = {
        name: float(np.median([getattr(one, name) for one in speaking])) for name in TYPICAL if speaking
    }
    return replace(start, **medians)


def on_other_hardware(one: Learned, start: Learned, known: Campaigns) -> Learned:
    """What a campaign says of its stack elsewhere: the software's factors, with typical ones of kernels and links."""
    return replace(typical(start, known), **{name: getattr(one, name) for name in SOFTWARE})
