"""The trace against the rules of the Trace Event Format, and against the step that it shows."""

import gzip
import json
import math
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise

import pytest

from planner.simulate.schedules import known_order
from planner.simulate.simulation import Disturbance, simulate
from planner.simulate.trace import chrome_trace, write_trace
from planner.spec.durations import Block, Durations, Segment

GIB = 2**30
METADATA = {
    "process_name": "name",
    "process_labels": "labels",
    "process_sort_index": "sort_index",
    "thread_name": "name",
    "thread_sort_index": "sort_index",
}


def layer(**changes):
    forward = (Segment("attention", 0.003, 0.001, "cp"), Segment("matmul", 0.004, 0.002, "tp"))
    backward = (Segment("experts", transfer=0.001, axis="ep"), Segment("matmul", 0.007, 0.002, "tp"))
    return replace(Block("layer", forward, backward, (Segment("weights", 0.0031),), kept=2.0 * GIB), **changes)


def played(name="1f1b", ranks=3, microbatches=5, *, block=None, disturbance=None, **changes):
    order = known_order(name, ranks, microbatches)
    stages = ((block or layer(),) * 2,) * order.num_stages
    table = Durations(stages, order.rank_of, order.num_microbatches, name, **{"send": 0.0005, **changes})
    return simulate(table, order, disturbance)


SHARDED = layer(gather=0.002, gather_again=0.002, reduce=0.003, gathered=GIB, reducing=GIB, gather_once=0.01)
STEPS = {
    "1f1b": {},
    "one rank": {"ranks": 1},
    "sharded": {"name": "interleaved", "block": SHARDED, "optimizer": (0.02,) * 3, "fixed": 0.001},
    "sends that take no time": {"name": "zb-h1", "send": 0.0},
    "pairs and stages on one rank": {"name": "dualpipe-v", "microbatches": 9, "penalty": 0.3},
    "jitter": {"disturbance": Disturbance({1: 1.3}, 0.2, 7), "block": layer(reduce_once=0.002)},
    "a stage that computes nothing": {"block": Block("", (), (), kept=GIB), "optimizer": (0.1,) * 3},
}


@pytest.fixture(params=STEPS)
def simulation(request):
    return played(**STEPS[request.param])


def slices(trace):
    return [event for event in trace["traceEvents"] if event["ph"] == "X"]


def is_count(value):
    return isinstance(value, int) and value >= 0


def is_finite(value):
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def problem(event):
    """What the format does not allow of one event, or nothing."""
    phase, arguments = event["ph"], event.get("args", {})
    if phase not in "MXCsf" or not event["name"] or not (is_count(event["pid"]) and is_count(event["tid"])):
        return "head"
    if phase == "M":
        return "" if METADATA.get(event["name"]) in arguments else "metadata"
    if not is_finite(event["ts"]) or event["ts"] < 0:
        return "time"
    if phase == "X" and not (is_finite(event["dur"]) and event["dur"] > 0 and event["cat"]):
        return "slice"
    if phase == "C" and not (arguments and all(is_finite(value) for value in arguments.values())):
        return "counter"
    if phase in "sf" and not (is_count(event["id"]) and event["cat"] and (phase == "s" or event["bp"] == "e")):
        return "flow"
    return ""


def overlaps(trace):
    """Pairs of slices of one thread that overlap without one within the other."""
    threads = defaultdict(list)
    for event in slices(trace):
        threads[event["pid"], event["tid"]].append(event)
    found = []
    for events in threads.values():
        above = []
        for event in sorted(events, key=lambda each: (each["ts"], -each["dur"])):
            while above and above[-1]["ts"] + above[-1]["dur"] <= event["ts"]:
                above.pop()
            if above and event["ts"] + event["dur"] > above[-1]["ts"] + above[-1]["dur"]:
                found.append((above[-1], event))
            above.append(event)
    return found


def arrows(trace):
    """Slices that flows join, as Perfetto binds them: to what began last on the thread, in order of time, then file.

    An arrow that is not whole, leads back in time or leaves from or ends at no slice fails.
    """
    latest, begun, found = {}, {}, []
    for event in sorted((event for event in trace["traceEvents"] if "ts" in event), key=lambda each: each["ts"]):
        thread = (event["pid"], event["tid"])
        if event["ph"] == "X":
            latest[thread] = event
        elif event["ph"] in "sf":
            bound, key = latest[thread], (event["cat"], event["name"], event["id"])
            assert bound["ts"] <= event["ts"] < bound["ts"] + bound["dur"]
            if event["ph"] == "s":
                assert key not in begun
                begun[key] = bound
            else:
                found.append((begun.pop(key), bound))
    assert begun == {}
    return found


def same_pass(one, other):
    return all(one["args"].get(name) == other["args"][name] for name in ("stage", "microbatch", "pass"))


def computes(event):
    return event["args"]["segment"] not in ("gather", "reduce", "send")


def refuse(constant):
    raise AssertionError(f"{constant} is no JSON")


def test_every_event_keeps_to_the_format(simulation):
    trace = chrome_trace(simulation)
    assert trace["displayTimeUnit"] in ("ms", "ns")
    assert [(problem(event), event) for event in trace["traceEvents"] if problem(event)] == []


def test_slices_of_a_thread_do_not_overlap(simulation):
    assert overlaps(chrome_trace(simulation)) == []


def test_rules_that_are_checked_find_what_breaks_them():
    trace = chrome_trace(played(ranks=2))
    begin = next(event for event in trace["traceEvents"] if event["ph"] == "s")
    some = slices(trace)[3]
    assert problem(some | {"dur": math.nan}) == problem(some | {"dur": 0.0}) == "slice"
    assert problem(some | {"ts": -1.0}) == "time"
    assert problem(begin | {"id": "a"}) == "flow"
    assert overlaps({"traceEvents": [some, some | {"ts": some["ts"] + some["dur"] / 2}]})
    with pytest.raises(AssertionError):
        arrows({"traceEvents": [*slices(trace), begin]})
    with pytest.raises(AssertionError):
        arrows({"traceEvents": [*slices(trace), begin | {"ts": begin["ts"] + 1e9}]})


def test_times_are_exact_in_nanoseconds_too(simulation):
    """Readers multiply by 1000 and cut off what is no whole number."""
    for event in slices(chrome_trace(simulation)):
        assert (event["ts"] * 1000).is_integer()
        assert (event["dur"] * 1000).is_integer()


def test_tracks_have_names_and_stand_in_order():
    events = chrome_trace(played(ranks=2, block=SHARDED))["traceEvents"]
    said = defaultdict(dict)
    for event in events:
        if event["ph"] == "M":
            thread = event["tid"] if event["name"].startswith("thread") else None
            said[event["pid"], thread][event["name"]] = event["args"][METADATA[event["name"]]]
    assert said[1, None] == {"process_name": "pipeline rank 1", "process_labels": "stage 1", "process_sort_index": 1}
    threads = {key: names for key, names in said.items() if key[1] is not None}
    in_order = [threads[key]["thread_name"] for key in sorted(threads) if key[0] == 0]
    assert in_order == [
        "compute", "tp collectives", "cp exchange", "ep all-to-all", "gather of weights", "reduction of gradients",
        "send to the next stage",
    ]  # fmt: skip
    assert all(names["thread_sort_index"] == thread for (_, thread), names in threads.items())
    assert {(event["pid"], event["tid"]) for event in events if event["ph"] == "X"} == threads.keys()


def test_the_compute_of_each_rank_is_all_there(simulation):
    trace = chrome_trace(simulation)
    for rank, use in enumerate(simulation.ranks):
        mine = [event for event in slices(trace) if event["pid"] == rank and event["tid"] == 1]
        assert sum(event["dur"] for event in mine) == pytest.approx(use.busy * 1e6, abs=0.125 * len(mine))
    assert max(event["ts"] + event["dur"] for event in slices(trace)) == pytest.approx(simulation.makespan * 1e6)


def test_a_slice_says_what_it_is():
    trace = chrome_trace(played(ranks=2))
    found = next(event for event in slices(trace) if event["name"] == "1F3 layer attention" and event["tid"] == 1)
    said = {"segment": "attention", "block": "layer", "pass": "forward", "stage": 1, "microbatch": 3}
    assert found["args"] == said
    assert found["cat"] == "forward"
    assert found["dur"] == 3000.0
    sent = next(event for event in slices(trace) if event["name"] == "0F3 send")
    assert (sent["cat"], sent["args"]) == (
        "transfer",
        {"segment": "send", "pass": "forward", "stage": 0, "microbatch": 3},
    )


@pytest.mark.parametrize(("name", "send"), [("1f1b", 0.0005), ("1f1b", 0.0), ("zb-h1", 0.0005), ("zb-v", 0.0005)])
def test_an_arrow_leads_from_each_send_to_what_it_is_for(name, send):
    simulation = played(name, ranks=4, microbatches=6, send=send)
    trace = chrome_trace(simulation)
    found = arrows(trace)
    owner = simulation.order.rank_of
    between = sum(one != other for one, other in pairwise(owner))
    assert len(found) == 2 * between * 6
    for source, target in found:
        one, other = source["args"], target["args"]
        assert source["pid"] != target["pid"] == owner[other["stage"]]
        assert one["microbatch"] == other["microbatch"]
        assert other["stage"] == one["stage"] + (1 if one["pass"] == "forward" else -1)
        assert source["ts"] + source["dur"] <= target["ts"]
        assert (one["segment"] == "send") == (send > 0)
        assert target["ts"] == min(
            event["ts"] for event in slices(trace) if same_pass(event, target) and computes(event)
        )


def test_no_arrow_leads_to_a_stage_without_tasks():
    assert arrows(chrome_trace(played(block=Block("", (), ())))) == []


def test_memory_is_a_counter_that_reaches_the_peak(simulation):
    counters = [event for event in chrome_trace(simulation)["traceEvents"] if event["ph"] == "C"]
    for rank, timeline in enumerate(simulation.memory):
        mine = [event for event in counters if event["pid"] == rank]
        held = [event for event in mine if event["name"] == "memory (GiB)"]
        fullest = max((sum(event["args"].values()) for event in held), default=0.0)
        assert fullest == pytest.approx(timeline.peak / GIB, abs=1e-5)
        assert max(event["args"]["in flight"] for event in mine if event["name"] == "micro-batches") == pytest.approx(
            timeline.peak_in_flight
        )
        assert [event["ts"] for event in held] == sorted(event["ts"] for event in held)


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_the_file_holds_the_trace_as_strict_json(tmp_path, simulation, name):
    path = tmp_path / name
    write_trace(path, simulation)
    text = gzip.decompress(path.read_bytes()).decode() if name.endswith("gz") else path.read_text()
    assert json.loads(text, parse_constant=refuse) == chrome_trace(simulation)


def test_a_trace_longer_than_a_part_is_whole(tmp_path):
    simulation = played(ranks=8, microbatches=64, block=SHARDED)
    write_trace(tmp_path / "long.json", simulation)
    trace = json.loads((tmp_path / "long.json").read_text())
    assert len(trace["traceEvents"]) > 3 * 4096
    assert trace == chrome_trace(simulation)


def test_a_name_with_quotes_and_breaks_stays_a_name(tmp_path):
    hostile = 'a"},{"ph":"\n</script>\u2028'
    simulation = played(block=layer(name=hostile))
    write_trace(tmp_path / "trace.json", simulation)
    names = {event["args"]["block"] for event in slices(json.loads((tmp_path / "trace.json").read_text()))
             if "block" in event["args"]}  # fmt: skip
    assert names == {hostile}
