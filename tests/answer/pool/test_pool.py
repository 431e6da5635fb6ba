"""Several jobs on one pool: speeds as recommended, divisions against all others, and when disaggregation pays."""

from itertools import product

import pytest

from planner.answer.choices import Choices
from planner.answer.pool.answer import pool
from planner.answer.pool.jobs import read_jobs
from planner.answer.pool.trial import PoolChoices
from planner.answer.pool.ways import FIXED, MEMORY, POOL, SHARED
from planner.answer.recommend import recommend
from planner.economics.pool_timeline import reserved
from planner.errors import FileFormatError, NoFeasiblePlan, SpecError

SMALL = """
[[jobs]]
name = "a"
model = "llama-3.2-1b"
tokens = "2B"
seq_len = 2048
global_batch_size = 96
"""
SECOND = SMALL.replace('"a"', '"b"').replace("2B", "600M")
THIRD = SMALL.replace('"a"', '"c"').replace('"2B"', '"500M"').replace("seq_len", 'method = "lora"\nseq_len')


@pytest.fixture
def ask(tmp_path):
    """The answer for a file's text."""

    def answer(text, cluster="2xdgx-h100", **choices):
        path = tmp_path / "jobs.toml"
        path.write_text(text)
        return pool(path, cluster, PoolChoices(**choices))

    return answer


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    path = tmp_path_factory.mktemp("pool") / "jobs.toml"
    path.write_text(SMALL + SECOND + THIRD)
    return pool(path, "4xdgx-h100", PoolChoices(fabric="ib-ndr400,roce-100,tcp-10"))


def test_speeds_are_those_of_recommend(found):
    speeds = found.of_kind(SHARED).speeds
    job = Choices(seq_len=2048, global_batch_size=96)
    for number, cluster in {4: "4xh100-sxm", 8: "1xhgx-h100", 16: "2xhgx-h100"}.items():
        best = recommend("llama-3.2-1b", cluster, job, top=1).best
        assert speeds["a"].by_count[number] == pytest.approx(float(best.speed.tokens_per_s))
    assert speeds["a"].by_count == speeds["b"].by_count


def test_all_work_of_every_job_is_done_in_every_way(found):
    for way in found.ways:
        for number, job in enumerate(way.timeline.jobs):
            spans = [span for span in way.timeline.spans if span.job == number]
            done = sum(job.speeds[s.accelerators] * (s.end - s.start - s.paused) for s in spans)
            assert done == pytest.approx(job.work)
            assert way.timeline.ends[number] == pytest.approx(max(span.end for span in spans))


def test_fixed_nodes_are_the_best_of_all_divisions(found):
    """Three jobs over four nodes: every division of whole nodes, each job with at least one."""
    way = found.of_kind(FIXED)
    jobs = way.timeline.jobs
    counts = [
        each for each in product(*(job.speeds for job in jobs)) if sum(each) <= 32 and all(n % 8 == 0 for n in each)
    ]
    assert len(counts) > 3
    assert way.timeline.makespan == pytest.approx(min(reserved(jobs, 32, each).makespan for each in counts))


def test_sharing_is_never_worse_than_fixed_nodes(found):
    assert found.of_kind(SHARED).timeline.makespan <= found.of_kind(FIXED).timeline.makespan * (1 + 1e-9)


def test_ways_are_in_order_and_the_sentence_begins_with_the_best(found):
    spans = [way.timeline.makespan for way in found.ways]
    assert spans == sorted(spans)
    assert found.sentence.startswith("3 jobs on 4xdgx-h100 (32 GPUs): best on ")
    assert found.best.name in found.sentence
    assert found.verdict[1:] in found.sentence


def test_the_slower_the_fabric_the_slower_the_pool(found):
    pools = {way.site.name: way for way in found.ways if way.kind == POOL}
    times = [pools[name].timeline.makespan for name in ("ib-ndr400", "roce-100", "tcp-10")]
    assert times == sorted(times)
    assert all(0 < found.fabric_cost[way.name] < 1 for way in pools.values())
    for number, job in enumerate(pools["tcp-10"].timeline.jobs):
        fast = pools["ib-ndr400"].timeline.jobs[number]
        assert all(speed <= fast.speeds.get(n, speed) * (1 + 1e-9) for n, speed in job.speeds.items())


def test_a_fabric_that_costs_nothing_would_make_the_pool_no_worse_than_nodes(found):
    """Any number of GPUs has all that nodes have."""
    shared = found.of_kind(SHARED).timeline.makespan
    assert all(measure <= shared * (1 + 1e-9) for measure in found.without_cost.values())


def test_a_pool_as_fast_as_a_nodes_own_links_costs_next_to_nothing(ask):
    text = SMALL + SECOND + '[fabric]\nbandwidth = "450 GB/s"\nlatency = "1 us"\n'
    answer = ask(text, "1xdgx-h100")
    assert answer.fabric_cost["pool over the file's fabric"] < 0.1


def test_disaggregation_pays_where_nodes_strand_gpus(ask):
    """Five jobs that may have just three GPUs: two nodes of eight run four at once and strand four GPUs."""
    three = SMALL.replace('"2B"', '"300M"') + "min_gpus = 3\nmax_gpus = 3\n"
    answer = ask("".join(three.replace('"a"', f'"{name}"') for name in "abcde"))
    shared, drawn = answer.of_kind(SHARED), answer.of_kind(POOL)
    assert answer.best is drawn
    assert drawn.timeline.makespan < 0.6 * shared.timeline.makespan
    assert shared.idle_share > 0.4 > drawn.idle_share
    assert answer.verdict.startswith("disaggregation pays: ")
    fixed = answer.of_kind(FIXED)
    assert fixed.timeline.makespan > 1.4 * shared.timeline.makespan  # two at a time, five GPUs of each node stranded
    assert fixed.idle_share == pytest.approx(1 - 3 * 5 / (16 * 3))


def test_disaggregation_does_not_pay_where_one_job_fills_the_nodes(ask):
    answer = ask(SMALL, fabric="roce-100")
    assert answer.best.kind != POOL
    assert answer.verdict.startswith("disaggregation does not pay: ")


def test_jobs_with_stated_nodes_have_them(ask):
    both = ask(SMALL + "nodes = 1\n" + SECOND + "nodes = 1\n")
    fixed = both.of_kind(FIXED)
    assert [span.accelerators for span in fixed.timeline.spans] == [8, 8]
    assert fixed.timeline.idle_share > 0.1  # the short job's node is its own for good


def test_a_free_restart_makes_no_way_slower(ask):
    free, dear = (ask(SMALL + SECOND + THIRD, restart_seconds=s) for s in (0.0, 1e5))
    assert free.of_kind(SHARED).timeline.makespan <= dear.of_kind(SHARED).timeline.makespan * (1 + 1e-9)
    assert dear.of_kind(SHARED).timeline.resizes == 0


def test_the_pause_is_the_restart_and_the_state_over_the_ports(ask):
    """1.236 billion parameters of 16-bit weights, fp32 copy and two fp32 moments: 14 bytes each."""
    job = ask(SMALL).of_kind(SHARED).timeline.jobs[0]
    moved = 14 * 1.2358e9 / (8 * 50e9)
    assert job.pause(8, 16) == pytest.approx(60 + moved, rel=1e-3)
    assert job.pause(16, 8) == job.pause(8, 16)


def test_remote_memory_holds_what_gpus_do_not(ask):
    big = SMALL.replace("llama-3.2-1b", "llama-3.1-70b").replace('"2B"', '"10M"').replace("96", "64")
    memory = '[memory]\nsize = "{}"\nbandwidth = "{}"\nlatency = "2 us"\n'
    wide = ask(big + memory.format("8 TiB", "50 GB/s"), "1xdgx-h100")
    thin = ask(big + memory.format("8 TiB", "5 GB/s"), "1xdgx-h100")
    offloaded = wide.of_kind(MEMORY).speeds["a"].plans[8]
    assert offloaded.plan.offload > 0
    assert wide.of_kind(MEMORY).timeline.makespan < thin.of_kind(MEMORY).timeline.makespan
    small = ask(big + memory.format("100 GiB", "50 GB/s"), "1xdgx-h100")
    assert MEMORY in small.refused


def test_deadlines_and_priorities_are_met_first(ask):
    urgent = SECOND + "deadline_hours = 0.45\n"
    answer = ask(SMALL + urgent, "1xdgx-h100")
    way = answer.best
    assert way.timeline.late == 0
    assert way.timeline.ends[1] <= 0.45 * 3600
    impossible = ask(SMALL + SECOND + "deadline_hours = 0.001\n", "1xdgx-h100")
    assert impossible.best.timeline.late == 1
    assert "1 deadline missed" in impossible.sentence


def test_mean_turnaround_puts_short_jobs_first(ask):
    text = SMALL + SECOND
    last, mean = (ask(text, objective=each).best.timeline for each in ("makespan", "turnaround"))
    assert mean.mean_turnaround <= last.mean_turnaround * (1 + 1e-9)
    assert last.makespan <= mean.makespan * (1 + 1e-9)


def test_what_fits_nowhere_has_no_answer(ask):
    with pytest.raises(NoFeasiblePlan, match="a fits on no number of GPUs that it may have"):
        ask(SMALL.replace("llama-3.2-1b", "llama-3.1-405b"), "1xrtx-4090")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "jobs"),
        ("jobs = 3", "must be a list of tables"),
        ("[[jobs]]\nname = 'a'", "model"),
        (SMALL + "steps = 5", "needs either tokens or steps"),
        (SMALL + "colour = 'red'", "colour"),
        (SMALL + SMALL, "two jobs are named 'a'"),
        (SMALL + "priority = -1", "priority"),
        (SMALL + "arrival_hours = 5\ndeadline_hours = 4", "must be after the arrival"),
        (SMALL + "min_gpus = 4\nmax_gpus = 2", "must be at least min_gpus, 4"),
        (SMALL.replace('"2B"', '"0"'), "1 to"),
        (SMALL + "[fabric]\nbandwidth = '50 gbps'\nlatency = '1 us'", "gbps"),
        (SMALL + "[fabric]\nname = 'carrier pigeon'", "unknown network"),
        (SMALL + "[memory]\nsize = '1 TiB'", "bandwidth"),
    ],
)
def test_a_wrong_file_is_one_line_with_file_and_key(tmp_path, text, words):
    path = tmp_path / "jobs.toml"
    path.write_text(text)
    with pytest.raises(FileFormatError, match=words) as error:
        read_jobs(path)
    assert str(error.value).startswith(str(path))
    assert "\n" not in str(error.value)


def test_what_cannot_be_asked(ask):
    with pytest.raises(SpecError, match="unknown objective"):
        ask(SMALL, objective="fun")
    with pytest.raises(SpecError, match="--usd-per-gpu-hour"):
        ask(SMALL, usd_per_gpu_hour=-1.0)
    with pytest.raises(SpecError, match="--restart-seconds"):
        ask(SMALL, restart_seconds=-1.0)
    with pytest.raises(SpecError, match="has 3 nodes, the cluster 2"):
        ask(SMALL + "nodes = 3\n")
    with pytest.raises(SpecError, match="nodes of one kind"):
        ask(SMALL, "docs/examples/cluster-mixed.toml")
