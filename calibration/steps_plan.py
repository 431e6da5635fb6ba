"""Training steps that are measured: a small decoder under a few plans, as the trainer and the planner see them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace

from calibration.measurements import Machine, Measurement, Parameter
from planner.quantities import Count
from planner.spec.model import Attention, Layer, Mlp, Model
from planner.spec.plan import Plan, Recompute, Schedule, Sharding
from planner.spec.workload import Workload

SHARDINGS = {"none": Sharding.NONE, "zero3": Sharding.ZERO3, "zero3_keep": Sharding.ZERO3_KEEP}


@dataclass(frozen=True)
class Step:
    """One step: dimensions of a decoder of equal layers with as many key-value heads as heads, its job and plan."""

    dtype: str
    layers: int
    hidden: int
    intermediate: int
    heads: int
    vocabulary: int
    seq_len: int
    micro_batch_size: int
    num_microbatches: int = 1
    tp: int = 1
    pp: int = 1
    dp: int = 1
    sharding: str = "none"
    recompute: str = "none"
    compiled: str = "no"

    @property
    def job(self) -> tuple[Parameter, ...]:
        """What steps have in common that differ in their plan and batch only."""
        return (self.dtype, self.layers, self.hidden, self.intermediate, self.heads, self.vocabulary, self.seq_len)

    @property
    def ranks(self) -> Count:
        """Processes that the plan needs."""
        return self.tp * self.pp * self.dp

    @property
    def measurement(self) -> Measurement:
        """The step as it is measured."""
        return Measurement("training_step", asdict(self))

    @classmethod
    def of(cls, parameters: Mapping[str, Parameter]) -> Step:
        """The step of a measurement. Raises TypeError for other parameters."""
        return cls(**parameters)  # type: ignore[arg-type]

    @property
    def model(self) -> Model:
        """The decoder as the planner sees it."""
        attention = Attention(self.heads, self.heads, self.hidden // self.heads)
        layer = Layer(attention, Mlp(self.intermediate), other_parameters=2 * self.hidden)
        return Model("step", self.hidden, self.vocabulary, (layer,) * self.layers, other_parameters=self.hidden)

    @property
    def plan(self) -> Plan:
        """The plan as the planner sees it."""
        replicates = self.sharding == "none"
        return Plan(
            tp=self.tp,
            pp=self.pp,
            dp_shard=1 if replicates else self.dp,
            dp_replicate=self.dp if replicates else 1,
            micro_batch_size=self.micro_batch_size,
            num_microbatches=self.num_microbatches,
            sharding=SHARDINGS[self.sharding],
            recompute=Recompute[self.recompute.upper()],
            schedule=Schedule.ONE_F_ONE_B if self.pp > 1 else Schedule.NONE,
            sequence_parallel=int(self.tp > 1),
            compiled=int(self.compiled == "yes"),
        )

    @property
    def workload(self) -> Workload:
        """The job."""
        batch = self.micro_batch_size * self.num_microbatches * self.dp
        return Workload(batch, self.seq_len, precision=self.dtype, attention="sdpa")


SMALL = {
    "cpu": Step("fp32", 4, 256, 768, 4, 2048, 128, micro_batch_size=4),
    "cuda": Step("bf16", 4, 2048, 5632, 16, 32000, 2048, micro_batch_size=2),
}
LARGE = {
    "cpu": Step("fp32", 2, 512, 1536, 8, 2048, 256, micro_batch_size=2),
    "cuda": Step("bf16", 4, 4096, 14336, 32, 32000, 4096, micro_batch_size=1),
}


TINY = Step("fp32", 4, 64, 128, 2, 64, 16, micro_batch_size=1, num_microbatches=4)
"""Nothing to compute: what is left is the host's. Fewer layers and micro-batches tell what each of them takes."""


def host_steps(machine: Machine) -> Iterator[Measurement]:
    """Steps that compute next to nothing: under the plans of all ranks, and recomputed."""
    world = int(machine.processes)
    tiny = replace(TINY, dtype=_dtype(machine))
    kinds = [replace(tiny, dp=world), replace(tiny, dp=world, recompute="full")]
    if world > 1:
        kinds += [replace(tiny, dp=world, sharding="zero3")]
        heads = tiny.heads * -(-world // tiny.heads)
        kinds += [replace(tiny, tp=world, heads=heads)] if heads % world == 0 and tiny.hidden % heads == 0 else []
        kinds += [replace(tiny, pp=world, layers=2 * world, num_microbatches=2 * world)]
    for kind in kinds:
        yield kind.measurement
        yield replace(kind, layers=kind.layers // 2, num_microbatches=kind.num_microbatches // 2).measurement
    yield replace(kinds[0], num_microbatches=1).measurement


def training_steps(machine: Machine) -> Iterator[Measurement]:
    """Few steps that tell what a whole one adds to its parts: two models, two batches, the plans of all ranks."""
    small, large = (replace(each[machine.device], dtype=_dtype(machine)) for each in (SMALL, LARGE))
    world = int(machine.processes)
    alone = [small, replace(small, micro_batch_size=4 * small.micro_batch_size), large]
    if machine.device == "cuda":
        alone += [
            replace(small, compiled="yes"),
            replace(small, recompute="full"),
            replace(small, recompute="selective"),
        ]
    steps = [replace(each, dp=world) for each in alone]
    if world > 1:
        steps += [replace(each, dp=world, sharding="zero3") for each in (small, large)]
        if small.heads % world == 0:
            steps += [replace(each, tp=world) for each in (small, large)]
        if small.layers % world == 0:
            steps += [replace(small, pp=world, num_microbatches=2 * world)]
    yield from (each.measurement for each in steps)


def _dtype(machine: Machine) -> str:
    own = SMALL[machine.device].dtype
    return machine.half if own == "bf16" else own
