"""One plan's derivation as data."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from planner.answer.evaluate import links_of
from planner.answer.link_traffic import link_traffic
from planner.answer.ranked_plan import RankedPlan
from planner.explain.volume import sent_volume
from planner.quantities import GIB
from planner.spec.codec import plan_to_plain

SCHEMA_VERSION = 1


def explanation(ranked: RankedPlan, *, links_too: bool = False) -> dict[str, Any]:
    """Every term of time and memory with value, formula and source, what each group gets of the network and sends.

    The JSON of `planner explain --json`; an unused kind of link has no bandwidth (null). `links_too` adds the traffic
    of every class of links as `link_traffic`.
    """
    asked = ranked.question
    links = links_of(asked, ranked.plan)
    return {
        "schema_version": SCHEMA_VERSION,
        "command": asked.command("explain"),
        **asked.as_dict(),
        "name": ranked.name,
        "plan": plan_to_plain(ranked.plan),
        "prediction": ranked.prediction(),
        "time": [each.as_dict("value_s", 1.0) for each in ranked.time_terms],
        "memory": [each.as_dict("value_gib", GIB) for each in ranked.memory_terms],
        "volume": sent_volume(asked.model, ranked.plan, asked.workload, asked.stack).as_dict(),
        "links": {field.name: getattr(links, field.name).as_dict() for field in fields(links)},
        **({"link_traffic": link_traffic(ranked).as_dict()} if links_too else {}),
    }
