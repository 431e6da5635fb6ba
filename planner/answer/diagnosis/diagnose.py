"""The whole diagnosis: files read, expectations made, causes found and put in order, one sentence first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from planner.answer.diagnosis import failures, faults, inside, limits, memory, network, pairs, runs
from planner.answer.diagnosis.expected import Plans, files_of
from planner.answer.diagnosis.files import take
from planner.answer.diagnosis.measured import memory as measured_memory
from planner.answer.diagnosis.measured import readings
from planner.answer.diagnosis.measured import speed as measured_speed
from planner.answer.diagnosis.records import Asked, Case, Cause, Comparison, Diagnosis, Rule, Standing, Strength, Taken
from planner.answer.diagnosis.tables import check_tables
from planner.answer.dumps import check_dumps
from planner.answer.question import machines_of
from planner.catalogue.hardware import accelerator
from planner.errors import FileFormatError
from planner.quantities import counted, three_digits
from planner.spec.cluster import Cluster

RULES: tuple[Rule, ...] = (
    *failures.RULES,
    *memory.RULES,
    pairs.slow_pairs,
    *network.RULES,
    *inside.RULES,
    *limits.RULES,
    *faults.RULES,
    *runs.RULES,
)
HEALTHY, NOTHING = "healthy", "nothing to compare"
MOST_COMMANDS = 4


def diagnose(asked: Asked) -> Diagnosis:
    """What is wrong with a run, or that nothing is.

    Raises FileFormatError where no file can be read, SpecError for options that are wrong.
    """
    case = case_of(asked)
    comparisons = tuple(_comparisons(case))
    causes = ordered(case)
    verdict = _verdict(case, comparisons, causes)
    return Diagnosis(
        case=case,
        verdict=verdict,
        sentence=_sentence(case, verdict, comparisons, causes),
        comparisons=comparisons,
        causes=causes,
        readings=readings(case),
        next_commands=tuple(dict.fromkeys(each.next_command for each in causes))[:MOST_COMMANDS],
    )


def case_of(asked: Asked) -> Case:
    """Everything that is known: files as what they are, the plan with its estimates, what was measured."""
    if asked.gpu:
        accelerator(asked.gpu, where="--gpu")
    files = tuple(take(path) for path in files_of(asked))
    if files and not any(file.known for file in files) and not (asked.measured_tps or asked.measured_mem):
        raise FileFormatError("; ".join(f"{file.path}: {file.problem}" for file in files[:3]))
    plans = Plans(asked, files)
    plan = plans.plan()
    notes = list(plans.notes)
    cluster = plan.question.cluster if plan else machines_of(plans.cluster) if plans.cluster else None
    checks, remarks = check_tables(files, cluster=cluster, gpu=asked.gpu)
    hosts = check_dumps([file.dump for file in files if file.dump], gpu=asked.gpu)
    case = Case(asked, files, plan, checks=tuple(checks), hosts=tuple(hosts))
    speed, more = measured_speed(case)
    case = replace(case, speed=speed, memory=measured_memory(case))
    notes += [*remarks, *more, *_missing(case, cluster)]
    return replace(case, notes=tuple(dict.fromkeys(notes)))


def _missing(case: Case, cluster: Cluster | None) -> Iterator[str]:
    """What would let more be said."""
    figures = any(file.log for file in case.files) or case.asked.measured_tps or case.asked.measured_mem
    if case.plan is None and case.speed is None and (figures or any(file.settings for file in case.files)):
        has_settings = any(file.settings or file.is_plan for file in case.files)
        missing = [name for name, given in (("--model", case.asked.model), ("--cluster", cluster)) if not given]
        plan = "" if has_settings else ", and the settings (or --fix)" if missing else "the settings, or --fix"
        yield f"to know what was to be expected of the run, give {' and '.join(missing)}{plan}"
    mfu = case.plan and case.speed and float(case.plan.speed.mfu) * case.speed.measured / case.speed.expected
    if mfu and mfu > 1:
        yield f"the measured speed is an MFU of {mfu:.0%}, which cannot be: of one GPU or of all, of which model?"


def _comparisons(case: Case) -> Iterator[Comparison]:
    yield from filter(None, (case.speed, case.memory))
    for check in case.checks:
        yield check.comparison


def ordered(case: Case) -> tuple[Cause, ...]:
    """All causes, each once in its surest form: what files show first, then what figures fit, then what is possible."""
    found: dict[str, Cause] = {}
    for rule in RULES:
        for cause in rule(case):
            known = found.get(cause.cause)
            if known is None or (cause.strength, -cause.gain) < (known.strength, -known.gain):
                found[cause.cause] = cause
    return tuple(sorted(found.values(), key=_place))


def _place(cause: Cause) -> tuple[bool, int, float]:
    return cause.limit, cause.strength, -cause.gain


def _ended(case: Case) -> bool:
    return bool(case.signs(*failures.FATAL))


def _verdict(case: Case, comparisons: tuple[Comparison, ...], causes: tuple[Cause, ...]) -> str:
    """`healthy`, or the name of the first cause."""
    worse = _worse(case, comparisons) is not None
    trained = case.speed is not None and not worse
    decisive = [each for each in causes if not each.limit]
    if _ended(case) or worse:
        return causes[0].cause if causes else "slower than expected"
    if any(each.strength is Strength.SHOWN for each in decisive):
        return decisive[0].cause
    if trained or (comparisons and not _limited(causes)):
        return HEALTHY
    shown = [each for each in causes if each.strength is not Strength.POSSIBLE]
    return shown[0].cause if shown else HEALTHY if comparisons else NOTHING


def _worse(case: Case, comparisons: tuple[Comparison, ...]) -> Comparison | None:
    """The figure that is worst; memory alone counts only where it nearly fills the GPU."""
    worse = [each for each in comparisons if each.standing is Standing.WORSE]
    if not memory.nearly_full(case):
        worse = [each for each in worse if each is not case.memory]
    return case.speed if case.speed in worse else max(worse, key=lambda each: each.factor, default=None)


def _limited(causes: tuple[Cause, ...]) -> bool:
    """Whether the machine is slow as it is meant to be."""
    return any(each.limit and each.strength is Strength.SHOWN for each in causes)


def _sentence(case: Case, verdict: str, comparisons: tuple[Comparison, ...], causes: tuple[Cause, ...]) -> str:
    worse = _worse(case, comparisons)
    worst = worse or case.speed or next(iter(comparisons), None)
    figures = _figures(worst, case) if worst else ""
    first = next((each for each in causes if each.cause == verdict), None)
    if verdict == HEALTHY:
        other = [each.cause for each in causes if each.limit and each.strength is not Strength.POSSIBLE]
        return f"Healthy: {figures}.{' Worth a look: ' + ' and '.join(other[:2]) + '.' if other else ''}"
    if verdict == NOTHING:
        return f"Nothing looks wrong, and nothing can be compared: {_known(case.files)}."
    named = f"{verdict[0].upper()}{verdict[1:]}"
    if first is None:
        return f"{named}: {figures}."
    sure = {Strength.SHOWN: "", Strength.LIKELY: "Likely ", Strength.POSSIBLE: "Possibly "}[first.strength]
    named = f"{sure}{verdict}" if sure and verdict != memory.FULL else named
    shown = first.strength is Strength.SHOWN
    if worse and shown:
        run = f"{figures}; " if worse in (case.speed, case.memory) else ""
        return f"{named}: {run}{first.evidence}."
    if worse:
        return f"{named}: {figures}."
    beside = "" if worst is None else f" Healthy for that: {figures}." if first.limit else f" Measured: {figures}."
    return f"{named}: {first.evidence}.{beside}"


def _figures(each: Comparison, case: Case) -> str:
    world = case.plan.question.cluster.world_size if case.plan else 1
    per_gpu = f" ({three_digits(each.measured / world)} per GPU)" if each is case.speed and world > 1 else ""
    low, high = three_digits(each.low), three_digits(each.high)
    said = {
        Standing.INSIDE: "within what was expected",
        Standing.BETTER: "better than expected",
        Standing.WORSE: f"{each.factor:.1f} times {'more' if each.less_is_better else 'slower'} than expected",
    }[each.standing]
    return f"{each.what} {three_digits(each.measured)} {each.unit}{per_gpu}, {said} ({low} to {high})"


def _known(files: tuple[Taken, ...]) -> str:
    known = [file for file in files if file.known]
    if not known:
        return "no file tells a run or a machine"
    return f"{counted(len(known), 'file')} read ({', '.join(dict.fromkeys(file.taken_for for file in known))})"
