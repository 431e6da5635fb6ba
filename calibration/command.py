"""What `planner calibrate run` does, from its options to the files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from calibration.machine_cluster import cluster_of, known_cluster, toml_path
from calibration.measure.place import Place
from calibration.measurement_plan import distinct, usual_plan
from calibration.measurements import Machine, Measurement
from calibration.record import Record
from planner.catalogue.stacks import stack_slug
from planner.errors import PlannerError, SpecError


class MissingTorch(PlannerError):
    """What measures is not installed."""

    exit_code = 2


@dataclass(frozen=True)
class Request:
    """The options of a run."""

    device: str | None
    out: Path
    seconds: float
    """That measuring may take."""
    processes: int | None
    stack: str
    quiet: bool = False
    model: str | None = None
    cluster: str | None = None


@dataclass(frozen=True)
class Report:
    """What a run has to say at its end."""

    sentence: str
    commands: tuple[str, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Fit:
    """Makes the profile of a record, and describes the machine where the catalogue does not have it."""

    stack: str
    cluster: str | None = None

    def __call__(self, record: Record) -> None:
        """Put the profile into the record's file; nothing where too little was measured."""
        from calibration.profile_fit import fit_of

        described = cluster_of(record, self.cluster)
        if described is None:
            return
        if described.toml:
            toml_path(record).write_text(described.toml, encoding="utf-8")
        fit = fit_of(record, described.cluster, self.stack)
        record.fitted(fit.profile, fit.origins)


def measure_here(request: Request) -> Report | None:
    """Measure, fit and write. None on ranks of torchrun that do not speak.

    Raises PlannerError for a device that is not there, a file of another machine, or packages that are missing.
    """
    try:
        from calibration.measure import machine as machines
        from calibration.measure import run as runs
    except ModuleNotFoundError as error:
        raise MissingTorch(
            f"planner calibrate run needs {error.name}, which is not installed; pip install 'planner[calibration]'"
        ) from error
    if request.out.suffix != ".json":
        raise SpecError(f"must end in .json, not {request.out.name}", where="--out")
    device = request.device or machines.usual_device()
    if device == "cuda" and machines.usual_device() != "cuda":
        raise SpecError("torch finds no GPU here: --device cpu measures the processor", where="--device")
    fit = Fit(stack_slug(request.stack, where="--stack"), request.cluster)
    processes = request.processes or machines.usual_processes(device)
    place = Place.of_torchrun() if Place.told() else Place.here(0, processes)
    here = machines.machine(device, processes=place.world, nodes=place.nodes)
    if place.rank == 0:
        Record.open(request.out, here)
    measurements = planned(here, request.model, request.cluster)
    runs.run(runs.Job(device, request.out, measurements, fit, request.seconds, place.world, request.quiet))
    return _report(request, measurements) if place.rank == 0 else None


def planned(here: Machine, model: str | None, cluster: str | None, profile: Path | None = None) -> list[Measurement]:
    """What to measure on a machine: for training a model on a cluster where both are named, else the usual.

    `profile` holds the efficiencies that the choice rests on so far. Raises SpecError for names that are unknown.
    """
    usual = usual_plan(here)
    if model is None or cluster is None:
        if model != cluster:
            raise SpecError("--model and --cluster make up a decision together: name both")
        return usual
    from calibration.sensitivity import ranked
    from planner.answer.choices import Choices
    from planner.answer.question import ask

    question = ask(model, cluster, Choices(profile=str(profile) if profile else None))
    # What the catalogue does not have is described by its own bandwidth and products: these come first.
    first = [] if known_cluster(here) else usual[:2]
    return distinct([*first, *ranked(usual, question, here)])


def _report(request: Request, measurements: list[Measurement]) -> Report:
    if not request.out.exists():
        return Report("Nothing was measured: the time was too short.", (f"planner calibrate run --out {request.out}",))
    record = Record.read(request.out)
    wanted = {one.key for one in measurements}
    done = len(wanted & record.keys)
    failed = [entry for entry in record.entries if entry.failure]
    sentence = f"{done} of {len(wanted)} measurements are in {request.out}."
    if not record.profile:
        return Report(f"{sentence} They are too few for a profile: go on with more --minutes.", ())
    left = [one for one in measurements if one.key not in record.keys]
    sentence += f" Next best: {left[0].key}." if left else ""
    cluster = request.cluster or known_cluster(record.machine) or str(toml_path(record))
    return Report(
        sentence,
        (f"planner recommend MODEL {cluster} --profile {request.out}",),
        tuple(f"{entry.measurement.key}: {entry.failure}" for entry in failed),
    )
