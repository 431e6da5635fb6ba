"""The derivation of one plan printed for people: every term with value, formula and source."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields

from planner.answer.ranked_plan import RankedPlan
from planner.cli.printing import Heading, say, table
from planner.explain.breakdown import TermValue
from planner.explain.formula import Formula
from planner.explain.symbols import symbols
from planner.explain.volume import format_sent, sent_volume
from planner.quantities import format_bandwidth, format_bytes, format_seconds
from planner.topology.links import Links


def print_derivation(ranked: RankedPlan, links: Links) -> None:
    """Links, then step time and peak memory term by term, then the figures that the formulas take."""
    say(f"Plan: {ranked.words}.", indent="  ")
    say()
    say("What one GPU gets in each parallel group, its sister groups talking too (nominal, one direction):")
    _print_links(links, experts=ranked.question.model.has_experts)
    say()
    _print_sent(ranked)
    say()
    say(f"Step time {format_seconds(ranked.step_time)}, of which:")
    _print_terms(ranked.time_terms, format_seconds)
    say()
    role, moment = ranked.role.name.lower(), ranked.moment.name.lower().replace("_", " ")
    say(
        f"Peak memory {format_bytes(ranked.peak)} per GPU of {format_bytes(ranked.usable)} usable, "
        f"on the {role} pipeline rank, at: {moment}. Of which:"
    )
    _print_terms(ranked.memory_terms, format_bytes)
    say()
    say("Symbols:")
    terms = [term for term in (*ranked.time_terms, *ranked.memory_terms) if term.value > 0]
    for line in symbols(formula for term in terms for formula in term.formulas):
        say(f"  {line}", indent="    ")
    say()
    for line in inputs(ranked):
        say(line, indent="  ")


def _print_links(links: Links, *, experts: bool) -> None:
    """Groups of more than one rank; those of experts only where there are any."""
    rows = []
    for field in fields(links):
        group = getattr(links, field.name)
        if group.size > 1 and (experts or not field.name.startswith("expert")):
            crosses = group.size > group.local
            rows.append(
                [
                    field.name,
                    str(group.size),
                    str(group.local),
                    format_bandwidth(float(group.local_bandwidth)) if group.local > 1 else "-",
                    format_bandwidth(float(group.remote_bandwidth)) if crosses else "-",
                ]
            )
    headings = [
        Heading("group", left=True),
        Heading("ranks"),
        Heading("in one\nlink domain"),
        Heading("inside\nthe domain"),
        Heading("between\ndomains"),
    ]
    if rows:
        table(headings, rows)
    else:
        say("  none: nobody communicates")


def _print_sent(ranked: RankedPlan) -> None:
    """Bytes by group and collective, with the formulas of the collectives."""
    asked = ranked.question
    sent = sent_volume(asked.model, ranked.plan, asked.workload, asked.stack)
    if not sent.groups:
        return say("Bytes sent per GPU and step: none.")
    rank = "" if ranked.plan.pp == 1 else f", on the {sent.role.name.lower()} pipeline rank, which sends most"
    say(f"Bytes sent per GPU and step, headers aside{rank}:")
    headings = [Heading("group", left=True), Heading("sent"), Heading("in", left=True)]
    table(headings, [[each.group, format_sent(each.total), each.words] for each in sent.groups])
    return _print_formulas(sent.formulas)


def _print_terms(values: Sequence[TermValue], show: Callable[[float], str]) -> None:
    for each in values:
        if each.value > 0:
            say(f"  {show(each.value):>10}  {each.share:6.1%}  {each.term.title}", indent="      ")
            _print_formulas(each.formulas)
    absent = [each.term.title for each in values if each.value <= 0]
    if absent:
        say(f"  zero: {', '.join(absent)}", indent="    ")


def _print_formulas(formulas: Sequence[Formula]) -> None:
    for formula in formulas:
        say(f"        {formula.equation}", indent="          ")
        say(f"          {formula.name.removeprefix('planner.')}: {formula.source}", indent="            ")


def inputs(ranked: RankedPlan) -> list[str]:
    """The figures that the formulas take from the accelerator, the profile and the stack."""
    asked = ranked.question
    gpu, profile, stack = asked.cluster.accelerator, asked.profile, asked.stack
    precision = asked.workload.precision
    provisional = [name for name, source in gpu.sources.items() if source.provisional]
    lines = [
        f"Accelerator {gpu.name}: {float(gpu.peak_flops(precision)) / 1e12:,.1f} TFLOP/s dense {precision}, "
        f"{format_bandwidth(float(gpu.memory_bandwidth))} memory, {format_bytes(float(gpu.memory))}"
        + (f" (without source: {', '.join(provisional)})" if provisional else ""),
        f"Profile {profile.name} ({profile.level}): {profile.memory_efficiency:.2f} of the memory bandwidth, overlap "
        f"leaves {profile.overlap_penalty:.2f} of the shorter side, step time +-{profile.error:.0%}, memory "
        f"+-{profile.memory_error:.0%} (one standard deviation)",
        f"Stack {stack.name}: allocator slack {stack.allocator_slack:.2f}, context {format_bytes(float(stack.context))}"
        + (f". Source: {stack.source}" if stack.source else ""),
    ]
    return lines + [f"Profile source: {source}" for source in profile.sources]
