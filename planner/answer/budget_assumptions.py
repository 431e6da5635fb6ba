"""What a budget assumes beyond the question: power, purchase, failures, storage; each given or a public figure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields

from planner.answer.question import Question
from planner.economics.failures import job_mtbf
from planner.economics.ownership import SECONDS_PER_MONTH, SECONDS_PER_YEAR
from planner.errors import SpecError, unknown_name
from planner.quantities import GB, BytesPerSecond, Scalar, Seconds, Usd, UsdPerJoule, Watts
from planner.spec.figures import positive_number

HOUR, DAY, KILOWATT = 3600.0, 86400.0, 1000.0


@dataclass(frozen=True)
class Usual:
    """A value that is assumed where none is given, in the option's unit, with what may be given in its place."""

    value: float
    words: str
    source: str
    low: float = 0.0
    high: float = 1e9


@dataclass(frozen=True)
class BudgetChoices:
    """What the user chose, in the options' units; None is left to the planner. `buy` is text such as `years=4`."""

    power_kw_per_gpu: float | None = None
    pue: float | None = None
    power_price: float | None = None
    buy: str | None = None
    mtbf_hours_per_gpu: float | None = None
    failures_per_day: float | None = None
    checkpoint_gb_per_s: float | None = None
    restart_minutes: float | None = None
    spot_discount: float | None = None
    preemptions_per_day: float | None = None
    against: str | None = None
    seed: int = 0


NODE_SHARE = Usual(
    1.5,
    "{:.3g} kW per GPU with its share of the node",
    "1.5 times the board's: 8.4 kW were the most that a node of 8 H100 drew, Latif et al. 2024 (arXiv 2412.08602)",
)
STORAGE_PER_GPU = 2e12 / 16384
"""Bytes per second. Source: Llama 3 report (arXiv 2407.21783), section 3.3.1: 2 TB/s sustained; 16,384 GPUs."""
LEAST_STORAGE = 1 * GB
USUAL: Mapping[str, Usual] = {
    "power_kw_per_gpu": NODE_SHARE,
    "pue": Usual(1.56, "PUE {:g}", "average of the Uptime Institute's survey of 2024", 1.0, 10.0),
    "power_price": Usual(
        0.08, "{:g} USD per kWh", "US industrial average of 2023: EIA, Electric Power Annual", high=10.0
    ),
    "mtbf_hours_per_gpu": Usual(
        50677.0,
        "{:,.0f} h between failures of a GPU",
        "419 unexpected interruptions in 54 days on 16,384 H100: Llama 3 report (arXiv 2407.21783), section 3.3.4",
    ),
    "failures_per_day": Usual(0.0, "", "", high=1e5),
    "checkpoint_gb_per_s": Usual(
        0.0, "storage of {:.3g} GB/s", "2 TB/s for 16,384 GPUs: Llama 3 report, section 3.3.1; 1 GB/s at least"
    ),
    "restart_minutes": Usual(
        10.0,
        "{:g} minutes from a failure to the reading of the checkpoint",
        "MegaScale finds and diagnoses failures in under 10: Jiang et al. 2024 (arXiv 2402.15627), section 6.3",
        high=1e5,
    ),
    "spot_discount": Usual(0.58, "spot prices {:.0%} lower", "p5en: 7.91 USD on demand, 3.3 spot, 2026-08", high=0.99),
    "preemptions_per_day": Usual(0.0, "", "", high=1e5),
}
BUYING: Mapping[str, Usual] = {
    "usd_per_gpu": Usual(0.0, "{:,.0f} USD to buy a GPU with its share of node and network", "", high=1e7),
    "years": Usual(5.0, "used for {:g} years", "Amazon's 10-K of 2024: useful life of servers from 2025 on", high=50.0),
    "utilisation": Usual(
        0.83, "busy {:.0%} of the time", "RSC-1 of Meta: Kokolis et al. 2024 (arXiv 2410.21680)", high=1.0
    ),
    "hosting": Usual(
        184.06, "{:g} USD per kW and month for its place", "CBRE, North America Data Center Trends H2 2024", -1.0, 1e5
    ),
    "resale": Usual(
        0.1, "sold for {:.0%} in the end", "10 to 15 % after five years: GPU Lease Rate Index, 2026-01", -1.0, 1.0
    ),
}
"""Keys of `--buy`. Zero is allowed where `low` is below it."""
PURCHASE: Mapping[str, tuple[float, str]] = {
    "h100-sxm": (43000.0, "nodes of 310,000 USD and their InfiniBand for 1,024 GPUs: table of cluster prices, 2024-08"),
}
"""Accelerator -> USD each with its share of node and network, and the source; others have no dated public figure."""


@dataclass(frozen=True)
class Assumptions:
    """In base units. `mtbf` is the whole job's; `restart` is without reading the checkpoint.

    `power` is None where unknown, `purchase` where neither given nor known, `preemption_gap` (time between two
    preemptions) where spot instances were not asked for. `assumed` names what was not given, `options` repeats all.
    """

    power: Watts | None
    pue: Scalar
    electricity: UsdPerJoule
    mtbf: Seconds
    storage: BytesPerSecond
    restart: Seconds
    purchase: Usd | None
    life: Seconds
    utilisation: Scalar
    hosting: UsdPerJoule
    resale_share: Scalar
    spot_discount: Scalar
    preemption_gap: Seconds | None
    assumed: tuple[str, ...]
    options: str


def assumptions(question: Question, chosen: BudgetChoices) -> Assumptions:
    """What is given, and public figures for the rest. Raises SpecError for what cannot be."""
    _check(chosen)
    used, assumed = _filled(question, chosen)
    buying, bought = _buying(question, chosen.buy or "")
    gpus, purchase = question.cluster.world_size, buying["usd_per_gpu"]
    per_day, preemptions = used.get("failures_per_day"), used.get("preemptions_per_day")
    power = used.get("power_kw_per_gpu")
    if chosen.buy and power is None:
        raise SpecError(
            f"is needed: no power of {question.cluster.accelerator.name} is known", where="--power-kw-per-gpu"
        )
    return Assumptions(
        power=power and KILOWATT * power,
        pue=used["pue"],
        electricity=used["power_price"] / (KILOWATT * HOUR),
        mtbf=DAY / per_day if per_day else job_mtbf(HOUR * used["mtbf_hours_per_gpu"], gpus),
        storage=GB * used["checkpoint_gb_per_s"],
        restart=60 * used["restart_minutes"],
        purchase=purchase or None,
        life=buying["years"] * SECONDS_PER_YEAR,
        utilisation=buying["utilisation"],
        hosting=buying["hosting"] / (KILOWATT * SECONDS_PER_MONTH),
        resale_share=buying["resale"],
        spot_discount=used.get("spot_discount", 0.0),
        preemption_gap=DAY / preemptions if preemptions else None,
        assumed=(*assumed, *(bought if purchase and power else ())),
        options=_options(used, buying if purchase else {}, chosen),
    )


def _check(chosen: BudgetChoices) -> None:
    """Raise SpecError for numbers out of range and choices that contradict each other."""
    for field in fields(chosen):
        value = getattr(chosen, field.name)
        if value is not None and field.name in USUAL:
            _in_range(value, USUAL[field.name], where=_flag(field.name))
    if chosen.mtbf_hours_per_gpu is not None and chosen.failures_per_day is not None:
        raise SpecError("says the same as --mtbf-hours-per-gpu: give one of them", where="--failures-per-day")
    if chosen.spot_discount is not None and chosen.preemptions_per_day is None:
        raise SpecError("needs --preemptions-per-day", where="--spot-discount")


def _in_range(value: float, usual: Usual, *, where: str) -> float:
    number = positive_number(value, where=where, zero=usual.low < 0, most=usual.high)
    if number < usual.low:
        raise SpecError(f"must be at least {usual.low:g}, not {number:g}", where=where)
    return number


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _filled(question: Question, chosen: BudgetChoices) -> tuple[dict[str, float], list[str]]:
    """Every figure in its option's unit, and words for those that were not given."""
    given = {name: value for name in USUAL if (value := getattr(chosen, name)) is not None}
    wanted = {name: usual.value for name, usual in USUAL.items() if usual.value} | {
        "power_kw_per_gpu": NODE_SHARE.value * _board_power(question) / KILOWATT,
        "checkpoint_gb_per_s": max(STORAGE_PER_GPU * question.cluster.world_size, LEAST_STORAGE) / GB,
    }
    if chosen.failures_per_day is not None:
        del wanted["mtbf_hours_per_gpu"]
    if chosen.preemptions_per_day is None:
        del wanted["spot_discount"]
    filled = {name: value for name, value in wanted.items() if name not in given and value}
    return filled | given, [_words(USUAL[name], value) for name, value in filled.items()]


def _board_power(question: Question) -> Watts:
    """Of one accelerator, on average; 0 where that of any is unknown."""
    pools = question.cluster.pools
    if not all(pool.node.accelerator.power for pool in pools):
        return 0.0
    total = sum(pool.node.accelerator.power * pool.num_nodes * pool.node.gpus_per_node for pool in pools)
    return total / question.cluster.world_size


def _buying(question: Question, text: str) -> tuple[dict[str, float], list[str]]:
    """Every figure of buying, and words for those that were not given."""
    given: dict[str, float] = {}
    for name, value in _pairs(text):
        if name in given:
            raise SpecError(f"{name} is given twice", where="--buy")
        given[name] = value
    known = {name: usual.value for name, usual in BUYING.items()}
    price, source = PURCHASE.get(question.cluster.accelerator.name, (0.0, ""))
    sources = {name: usual.source for name, usual in BUYING.items()} | {"usd_per_gpu": source}
    values = known | {"usd_per_gpu": price} | given
    if given and not values["usd_per_gpu"]:
        part = question.cluster.accelerator.name
        raise SpecError(f"needs usd_per_gpu: no price to buy {part} is known", where="--buy")
    assumed = [
        f"{usual.words.format(values[name])} ({sources[name]})" for name, usual in BUYING.items() if name not in given
    ]
    return values, assumed


def _pairs(text: str) -> Iterator[tuple[str, float]]:
    """Keys and numbers of `--buy`. Raises SpecError."""
    for part in filter(None, (each.strip() for each in text.split(","))):
        name, _, number = part.partition("=")
        if name not in BUYING:
            raise unknown_name("assumption", name, BUYING, where="--buy")
        try:
            value = float(number)
        except ValueError:
            raise SpecError(f"must be a number, not {number!r}", where=f"--buy {name}") from None
        yield name, _in_range(value, BUYING[name], where=f"--buy {name}")


def _words(usual: Usual, value: float) -> str:
    return f"{usual.words.format(value)} ({usual.source})"


def _options(used: Mapping[str, float], buying: Mapping[str, float], chosen: BudgetChoices) -> str:
    """Everything as options, to ask the same again."""
    words = [word for name in USUAL if name in used for word in (_flag(name), f"{used[name]:.12g}")]
    if buying:
        words += ["--buy", ",".join(f"{name}={value:.12g}" for name, value in buying.items())]
    if chosen.against:
        words += ["--against", chosen.against]
    return shlex.join([*words, "--seed", str(chosen.seed)])
