"""Records of planner as tables with units in their headers."""

from __future__ import annotations

import pandas as pd

from planner import Recommendation


def ranking(answer: Recommendation) -> pd.DataFrame:
    """The ranked plans, the figures of `recommend --json`."""
    found = answer.as_dict()
    rate, peak = answer.best.rate[0], found["peak_tflops_per_gpu"]
    samples, gpus = rate == "samples/s", found["cluster"]["gpus"]
    rows = []
    for each in found["plans"]:
        plan, price = each["plan"], each["usd_per_million_tokens_range"]
        low, high = each["step_time_interval_s"]
        total = each["samples_per_s"] if samples else each["tokens_per_s"]
        rows.append(
            {
                "#": f"{each['rank']}{' ~' if each['tie'] else ''}",
                "plan": each["name"],
                "step time (s)": each["step_time_s"],
                "80 % from (s)": low,
                "80 % to (s)": high,
                f"{rate}": total,
                f"{rate} per GPU": total / gpus,
                f"MFU (% of {peak:,.0f} TFLOP/s)": 100 * each["mfu"],
                "memory per GPU (GiB)": each["peak_memory_gib"],
                "fits": each["memory_verdict"].replace("_", " "),
                "P(fits) (%)": 100 * each["p_fits"],
                "USD per Mtok": None if price is None else sum(price) / 2,
                **{name: plan[name] for name in ("tp", "pp", "cp", "ep", "dp_shard", "dp_replicate")},
                "micro-batch x number": f"{plan['micro_batch_size']} x {plan['num_microbatches']}",
                "schedule": plan["schedule"],
                "recompute": plan["recompute"],
            }
        )
    return pd.DataFrame(rows)


def shown(rate: float) -> str:
    """A rate for people.

    >>> shown(123456.7), shown(12.345)
    ('123,457', '12.3')
    """
    return f"{rate:,.0f}" if rate >= 1000 else f"{rate:.3g}"
