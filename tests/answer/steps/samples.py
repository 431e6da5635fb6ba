"""Logs of runs, as trainers write them."""

import json
from dataclasses import asdict

from planner.answer.choices import Choices
from planner.answer.recommend import recommend

GPU = "NVIDIA H100 80GB HBM3"


def planned(model="llama-3.1-8b", cluster="1xdgx-h100", **choices):
    """The best plan of the planner's own trainer."""
    fixed = {"stack": "pytorch", "fix": "pp=1", "global_batch_size": 64} | choices
    return recommend(model, cluster, Choices(**fixed)).best


def own_start(plan_json, *, device=GPU):
    """The first line of the trainer's record for a plan.json, by the trainer's own code."""
    from planner.emit.trainer.settings import read_settings

    settings = read_settings(plan_json)
    ranks = settings.plan.world_size
    return json.dumps(
        {"event": "start", "mesh": "", "device": device, "world_size": ranks, "settings": asdict(settings)}
    )


def own_steps(seconds, *, tokens=2**18, reserved=61.3):
    """A line of the record for each step."""
    return "".join(
        json.dumps(
            {
                "event": "step",
                "step": number,
                "step_time_s": each,
                "tokens_per_s": tokens / each,
                "loss": 2.0,
                "peak_allocated_gib": reserved - 2,
                "peak_reserved_gib": reserved,
            }
        )
        + "\n"
        for number, each in enumerate(seconds)
    )
