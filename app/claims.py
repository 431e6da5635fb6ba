"""Claims of practitioners' guides, each computed: what is asked of planner, and when the claim holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from planner import Choices, RankedPlan, Side, ask, fits


@dataclass(frozen=True)
class Dial:
    """A threshold of a claim: its name with unit, the values that it takes, and the claim's own."""

    name: str
    values: tuple[Any, ...]
    usual: Any


@dataclass(frozen=True)
class Verdict:
    """Whether a claim holds with its dials so, in one sentence with figures, and the commands behind it."""

    holds: bool
    words: str
    commands: tuple[str, ...]


@dataclass(frozen=True)
class Claim:
    """A claim in our words, its dials, and how it is judged."""

    words: str
    dials: Mapping[str, Dial]
    judge: Callable[..., Verdict]


def _judged(model: str, cluster: str, **choices: Any) -> RankedPlan:
    """The plan that `planner fits` judges within a `fix`."""
    return fits(ask(model, cluster, Choices(**choices))).ranked


def _best(model: str, cluster: str, **choices: Any) -> RankedPlan:
    """The best plan of all. Raises as `ask`; an assertion where nothing fits, which no dial here leads to."""
    side = Side.of("", ask(model, cluster, Choices(**choices)))
    assert side.ranked is not None, side.reason
    return side.ranked


def _of(ranked: RankedPlan, verb: str) -> str:
    return ranked.question.command(verb)


def _pipeline(stages: int, batches: int, linear: int) -> Verdict:
    fix = f"tp=1,pp={stages},cp=1,ep=1,dp=1,micro_batch_size=1,schedule=1f1b"
    cluster = f"{stages}xh200-sxm" if stages <= 8 else f"{stages // 8}xhgx-h200"
    ranked = _judged("llama-2-70b", cluster, global_batch_size=batches, fix=fix)
    kept = 1 - float(ranked.time.bubble) / ranked.step_time
    words = f"{stages} stages with {batches} micro-batches keep {kept:.0%} of linear (1F1B)"
    return Verdict(kept >= linear / 100, words, (_of(ranked, "fits"),))


def _nvlink(tp: int, gain: int) -> Verdict:
    runs = [
        _judged("llama-2-7b", f"{tp}xa100-{form}-80gb", global_batch_size=8, fix=f"tp={tp},recompute=full")
        for form in ("sxm", "pcie")
    ]
    ratio = runs[1].step_time / runs[0].step_time - 1
    words = f"at TP {tp} a step of llama-2-7b is {ratio:.0%} longer over PCIe 4 than over NVLink"
    return Verdict(ratio >= gain / 100, words, tuple(_of(each, "fits") for each in runs))


def _ethernet(tokens: int, network: str) -> Verdict:
    many = _best("llama-2-7b", "8xdgx-a100", seq_len=1024, global_batch_size=64 * tokens // 1024, network=network)
    few = _best("llama-2-7b", "4xa100-sxm-80gb", seq_len=1024, global_batch_size=max(4 * tokens // 1024, 4))
    one, other = float(many.speed.tokens_per_s), float(few.speed.tokens_per_s)
    speeds = f"64 A100 on {network} make {one:,.0f} tokens/s, 4 with NVLink {other:,.0f}"
    words = f"{speeds}, at {tokens:,} tokens per GPU and step"
    return Verdict(one < other, words, (_of(many, "recommend"), _of(few, "recommend")))


def _adam(model: str, state: str, gpu: str) -> Verdict:
    ranked = _judged(model, f"8x{gpu}", state=state, fix="sharding=ddp,tp=1,pp=1,cp=1,recompute=full")
    verdict = ranked.verdict.name.lower().replace("_", " ")
    gib = 2**30
    words = (
        f"{model} with DDP and AdamW, states {state}: {ranked.peak / gib:.1f} GiB per GPU of {ranked.usable / gib:.1f} "
        f"usable ({verdict})"
    )
    return Verdict(verdict != "does not fit", words, (_of(ranked, "fits"),))


def _thousands(gpus: int, tokens: int, linear: int) -> Verdict:
    many = _best("llama-3.1-8b", f"{gpus // 8}xdgx-h100", seq_len=1024, global_batch_size=gpus * tokens // 1024)
    one = _best("llama-3.1-8b", "1xdgx-h100", seq_len=1024, global_batch_size=8 * tokens // 1024)
    kept = float(many.speed.tokens_per_s_per_gpu) / float(one.speed.tokens_per_s_per_gpu)
    words = f"{gpus:,} H100 keep {kept:.0%} of one node's speed per GPU at {tokens:,} tokens per GPU and step"
    return Verdict(kept >= linear / 100, words, (_of(many, "recommend"), _of(one, "recommend")))


CLAIMS: Mapping[str, Claim] = {
    "pipeline": Claim(
        "A pipeline over 16 GPUs runs at 80 % of linear.",
        {
            "stages": Dial("stages", (2, 4, 8, 16), 16),
            "batches": Dial("micro-batches", (8, 16, 32, 60, 128), 16),
            "linear": Dial("of linear (%)", (60, 70, 80, 90), 80),
        },
        _pipeline,
    ),
    "nvlink": Claim(
        "NVLink gains tensor parallelism 35 % over PCIe.",
        {"tp": Dial("TP", (2, 4, 8), 2), "gain": Dial("gain (%)", (10, 20, 35, 50, 100, 200), 35)},
        _nvlink,
    ),
    "ethernet": Claim(
        "64 GPUs on 10 Gb/s Ethernet are slower than 4 with NVLink.",
        {
            "tokens": Dial("tokens per GPU and step", (1024, 2048, 4096, 8192, 16384, 65536), 1024),
            "network": Dial("network", ("tcp-10", "tcp-25", "tcp-100", "roce-100", "ib-hdr200"), "tcp-10"),
        },
        _ethernet,
    ),
    "adam": Claim(
        "A model of 7B with Adam takes some 30 GB, so plain data parallelism does on 80 GB.",
        {
            "model": Dial("model", ("llama-3.2-1b", "llama-3.2-3b", "llama-2-7b", "llama-2-13b"), "llama-2-7b"),
            "state": Dial("weights and states", ("mixed", "16bit"), "mixed"),
            "gpu": Dial("GPU", ("a100-sxm-40gb", "a100-sxm-80gb", "h200-sxm"), "a100-sxm-80gb"),
        },
        _adam,
    ),
    "thousands": Claim(
        "Training scales to 10,000 GPUs at 95 % of linear.",
        {
            "gpus": Dial("GPUs", (64, 512, 2048, 8192), 8192),
            "tokens": Dial("tokens per GPU and step", (1024, 2048, 4096, 16384, 65536), 2048),
            "linear": Dial("of linear (%)", (70, 80, 90, 95), 95),
        },
        _thousands,
    ),
}
