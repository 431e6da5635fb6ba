"""Feeding the GPUs: what storage, loaders and host have to keep up with, what launches cost, and a change of batch."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from planner.answer.budget_assumptions import LEAST_STORAGE, STORAGE_PER_GPU
from planner.answer.evaluate import evaluate
from planner.answer.question import Question
from planner.answer.ranked_plan import RankedPlan
from planner.answer.recommend import answer
from planner.economics.batch_scaling import fitted_batch, fitted_learning_rate, linear_rate_factor, root_rate_factor
from planner.economics.feeding import loader_workers, read_rate, staged_bytes
from planner.errors import SpecError
from planner.quantities import GB, BytesPerSecond, Count, PerSecond, Scalar, Seconds, three_digits
from planner.spec.batch import read_batch_size
from planner.spec.figures import positive_number

SCHEMA_VERSION = 1
SMALL_VOCABULARY = 2**16
IMAGE_BYTES = 138e9 / 1_281_167
"""Of ImageNet-1k's training images: 138 GB of them. Source: image-net.org."""
ID_AND_LABEL = 16.0
"""Bytes of a token as it goes to the accelerator: two numbers of 64 bits."""
IMAGE_PIXELS = 224 * 224 * 3 * 4.0
"""Bytes of an image as it goes to the accelerator, in fp32."""
TEXT_BYTES_PER_TOKEN = 4.0
"""English text under vocabularies of 32k to 256k: 3.5 to 4.7."""
TOKENISER = 1e9 / 20 / 64
"""Bytes per second and worker: a server's CPU takes 20 s for 1 GB (README of huggingface/tokenizers); 64 threads."""
COMPILED_OPERATORS = 20.0
"""Operators a layer dispatches under torch.compile, as the stacks have it."""
WORTH_A_WORD = 0.005
LINEAR = ("sgd", "sgd-momentum")
"""Optimizers whose learning rate grows with the batch; that of the others with its root."""


@dataclass(frozen=True)
class FeedChoices:
    """What the user chose, in the options' units; None is left to the planner."""

    storage_gb_per_s: float | None = None
    sample_bytes: float | None = None
    samples_per_s_per_worker: float | None = None
    from_batch: str | None = None
    learning_rate: float | None = None


@dataclass(frozen=True)
class Launching:
    """The same plan with launches that cost less: its step, and how much of it still waits for the host."""

    name: str
    step_time: Seconds
    host: Seconds


@dataclass(frozen=True)
class BatchAdvice:
    """Rules beside a change of batch: factors of the learning rate, and the batch that was best for the compute.

    `factor` is the change of batch (None where no batch to start from was given), `fitted_tokens` and `fitted_rate` are
    None without --tokens.
    """

    factor: Scalar | None
    rule: str
    rate_factor: Scalar | None
    learning_rate: float | None
    tokens_per_step: Count
    fitted_tokens: Count | None
    fitted_rate: float | None


@dataclass(frozen=True, eq=False)
class Feed:
    """What a plan takes in. Rates are bytes per second: of storage in total, of the host per node.

    `copies` is how many ranks need the same sample; `workers` (per node) is None where no rate of a worker is known.
    """

    ranked: RankedPlan
    samples_per_s: PerSecond
    sample_bytes: float
    copies: int
    stored: BytesPerSecond
    storage: BytesPerSecond
    workers: int | None
    staged: BytesPerSecond
    host_bandwidth: BytesPerSecond
    launching: tuple[Launching, ...]
    batch: BatchAdvice
    assumed: tuple[str, ...]
    options: str

    @property
    def keeps_up(self) -> bool:
        """Whether storage and host memory give what is taken, each sample read once."""
        host = not self.host_bandwidth or self.staged <= self.host_bandwidth
        return self.stored <= self.storage and host

    @property
    def sentence(self) -> str:
        """The answer in one sentence."""
        asked, (name, total, _) = self.ranked.question, self.ranked.rate
        return (
            f"{asked.model.name} on {asked.cluster.name} takes {total:,.0f} {name}: {rate_words(self.stored)} of the "
            f"{rate_words(self.storage)} that storage has, which {self._verdict}; {self._waiting}."
        )

    @property
    def _verdict(self) -> str:
        if not self.keeps_up:
            return "does not keep up"
        alone = self.stored * self.copies <= self.storage
        return "keeps up" if alone else f"keeps up unless {self.copies} GPUs read the same sample each for itself"

    @property
    def _waiting(self) -> str:
        planned, best = self.launching[0], min(self.launching, key=lambda each: each.step_time)
        waits = planned.host / planned.step_time
        if waits < WORTH_A_WORD:
            return "the step does not wait for launches"
        saved = 1 - best.step_time / planned.step_time
        return f"the step waits {waits:.0%} for launches, {best.name} would save {saved:.0%}"

    @property
    def command(self) -> str:
        """The whole question as one command line."""
        return f"{self.ranked.question.command('feed')} {self.options}"

    def as_dict(self) -> dict[str, Any]:
        """The JSON of `planner feed`."""
        asked = self.ranked.question
        return {
            "schema_version": SCHEMA_VERSION,
            "command": self.command,
            **asked.as_dict(),
            "answer": self.sentence,
            "plan": self.ranked.as_dict(),
            "samples_per_s": self.samples_per_s,
            "sample_bytes": self.sample_bytes,
            "copies": self.copies,
            "read_gb_per_s": self.stored / GB,
            "storage_gb_per_s": self.storage / GB,
            "workers_per_node": self.workers,
            "host_memory_gb_per_s": self.staged / GB,
            "host_memory_bandwidth_gb_per_s": self.host_bandwidth / GB or None,
            "keeps_up": self.keeps_up,
            "launching": [
                {"name": each.name, "step_time_s": each.step_time, "host_s": each.host} for each in self.launching
            ],
            "batch": asdict(self.batch),
            "assumed": [*asked.assumed, *self.assumed],
            "notes": list(asked.notes),
        }


def rate_words(rate: BytesPerSecond) -> str:
    """A rate for people, with three digits.

    >>> rate_words(4517000.0), rate_words(125e9)
    ('4.52 MB/s', '125 GB/s')
    """
    return f"{three_digits(rate / GB)} GB/s" if rate >= GB else f"{three_digits(rate / 1e6)} MB/s"


def feed(question: Question, chosen: FeedChoices | None = None) -> Feed:
    """What the best plan has to be fed. Raises SpecError for what cannot be, NoFeasiblePlan where nothing fits."""
    choices = chosen or FeedChoices()
    _check(choices)
    ranked = answer(question, top=1).best
    usual = _usual(question)
    used = {name: getattr(choices, name) or value for name, value in usual.items()}
    cluster, plan, per_worker = question.cluster, ranked.plan, used["samples_per_s_per_worker"]
    samples = float(ranked.speed.samples_per_s)
    copies = int(plan.tp * plan.pp * plan.cp)
    on_node = min(copies, cluster.node.gpus_per_node)
    return Feed(
        ranked=ranked,
        samples_per_s=samples,
        sample_bytes=used["sample_bytes"],
        copies=copies,
        stored=read_rate(samples, used["sample_bytes"]),
        storage=used["storage_gb_per_s"] * GB,
        workers=int(loader_workers(samples / cluster.num_nodes * on_node, per_worker)) if per_worker else None,
        staged=samples / cluster.num_nodes * on_node * _staged(question, used["sample_bytes"]),
        host_bandwidth=cluster.node.host_memory_bandwidth,
        launching=tuple(_launching(ranked)),
        batch=_advice(question, choices),
        assumed=tuple(_assumed(question, {k: v for k, v in used.items() if not getattr(choices, k)})),
        options=shlex.join([*_options(used), *_given(choices)]),
    )


def _check(chosen: FeedChoices) -> None:
    for name in ("storage_gb_per_s", "sample_bytes", "samples_per_s_per_worker", "learning_rate"):
        value = getattr(chosen, name)
        if value is not None:
            positive_number(value, where=f"--{name.replace('_', '-')}", most=1e12)
    if chosen.learning_rate is not None and chosen.from_batch is None:
        raise SpecError("needs --from-batch, the batch that it was found at", where="--learning-rate")


def _usual(question: Question) -> dict[str, float]:
    """What is assumed, in the options' units; no rate of a worker for images."""
    model, seq_len = question.model, question.workload.seq_len
    size = IMAGE_BYTES if not model.vocab_size else seq_len * (2.0 if model.vocab_size <= SMALL_VOCABULARY else 4.0)
    return {
        "storage_gb_per_s": max(STORAGE_PER_GPU * question.cluster.world_size, LEAST_STORAGE) / GB,
        "sample_bytes": size,
        "samples_per_s_per_worker": TOKENISER / (TEXT_BYTES_PER_TOKEN * seq_len) if model.vocab_size else 0.0,
    }


def _staged(question: Question, sample_bytes: float) -> float:
    """Host memory traffic of a sample."""
    if question.model.vocab_size:
        return staged_bytes(sample_bytes, ID_AND_LABEL * question.workload.seq_len)
    return staged_bytes(sample_bytes, IMAGE_PIXELS)


def _assumed(question: Question, usual: dict[str, float]) -> Iterator[str]:
    if "storage_gb_per_s" in usual:
        speed = usual["storage_gb_per_s"]
        yield f"storage of {speed:.3g} GB/s (2 TB/s for 16,384 GPUs: Llama 3 report; 1 GB/s at least)"
    if "sample_bytes" in usual:
        each = "an image of ImageNet-1k" if not question.model.vocab_size else "stored token ids"
        yield f"{usual['sample_bytes']:,.0f} bytes per sample ({each})"
    if usual.get("samples_per_s_per_worker"):
        yield (
            f"{usual['samples_per_s_per_worker']:.3g} samples/s per worker, text tokenised on the way (README of "
            "huggingface/tokenizers: 1 GB in 20 s on a server, of 64 threads; 4 bytes a token)"
        )


def _launching(ranked: RankedPlan) -> Iterator[Launching]:
    """The plan as it is, compiled where it is not, and with launches that cost nothing, as in a CUDA graph."""
    asked, plan = ranked.question, ranked.plan
    yield Launching("as planned", ranked.step_time, float(ranked.time.host))
    free = replace(asked, profile=replace(asked.profile, launch_time=0.0))
    variants = {"CUDA graphs": (free, plan)}
    if not plan.compiled:
        fused = replace(asked, stack=replace(asked.stack, kernels_per_layer=COMPILED_OPERATORS))
        variants = {"torch.compile": (fused, replace(plan, compiled=1)), **variants}
        variants["torch.compile and CUDA graphs"] = (free, replace(plan, compiled=1))
    for name, (question, other) in variants.items():
        judged = evaluate(question, other)
        yield Launching(name, judged.step_time, float(judged.time.host))


def _advice(question: Question, chosen: FeedChoices) -> BatchAdvice:
    job, model = question.workload, question.model
    linear = job.optimizer in LINEAR
    before = chosen.from_batch and read_batch_size(
        chosen.from_batch, seq_len=job.seq_len, world_size=question.cluster.world_size, where="--from-batch"
    )
    factor = job.global_batch_size / int(before) if before else None
    rate = factor and float((linear_rate_factor if linear else root_rate_factor)(factor))
    layers = model.active_parameters - model.embedding_parameters * (2 - model.tie_word_embeddings)
    compute = 6.0 * layers * job.tokens
    return BatchAdvice(
        factor=factor,
        rule="linear, Goyal et al. 2017 (SGD)" if linear else "square root, Malladi et al. 2022 (Adam)",
        rate_factor=rate,
        learning_rate=chosen.learning_rate * rate if chosen.learning_rate and rate else None,
        tokens_per_step=job.tokens_per_step,
        fitted_tokens=float(fitted_batch(compute)) if compute else None,
        fitted_rate=float(fitted_learning_rate(compute)) if compute else None,
    )


def _options(used: dict[str, float]) -> Iterator[str]:
    for name, value in used.items():
        if value:
            yield from (f"--{name.replace('_', '-')}", f"{value:.12g}")


def _given(chosen: FeedChoices) -> Iterator[str]:
    for name in ("from_batch", "learning_rate"):
        if (value := getattr(chosen, name)) is not None:
            yield from (f"--{name.replace('_', '-')}", f"{value}")
