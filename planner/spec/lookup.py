"""How the names in a specification are resolved: the catalogue hands its functions to the readers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from planner.spec.accelerator import Accelerator
from planner.spec.cluster import Fabric, Node


class NamedAccelerator(Protocol):
    """Looks up an accelerator by name. Raises SpecError, which starts with `where`, if there is none."""

    def __call__(self, name: str, *, where: str = "") -> Accelerator:
        """The accelerator of that name."""
        ...


class NamedNode(Protocol):
    """Looks up a node type by name. Raises SpecError, which starts with `where`, if there is none."""

    def __call__(self, name: str, *, where: str = "") -> Node:
        """The node type of that name."""
        ...


class NamedFabric(Protocol):
    """Looks up a network such as "roce-400x4". Raises SpecError, which starts with `where`, if there is none."""

    def __call__(self, text: str, *, where: str = "") -> Fabric:
        """The network of that name."""
        ...


@dataclass(frozen=True)
class Lookup:
    """The functions that resolve names."""

    accelerator: NamedAccelerator
    node: NamedNode
    network: NamedFabric
