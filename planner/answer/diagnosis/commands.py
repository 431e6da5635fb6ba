"""Commands to run next: lines of nccl-tests for the case, and what shows how NCCL is set up."""

from __future__ import annotations

from planner.answer.diagnosis.records import Case
from planner.answer.importing import fits_command
from planner.answer.ranked_plan import RankedPlan

SIZES = "-b 8M -e 8G -f 2"


def nccl_tests(case: Case, collective: str = "all_reduce", *, variables: str = "NCCL_DEBUG=INFO") -> str:
    """An nccl-tests line on as many nodes and GPUs as the case has (an MPI build where there are several nodes)."""
    nodes, per_node = _machines(case)
    if nodes == 1:
        return f"{variables} {collective}_perf {SIZES} -g {per_node}".strip()
    exported = " ".join(f"-x {each}" for each in variables.split())
    return f"mpirun -np {nodes * per_node} -N {per_node} {exported} {collective}_perf {SIZES} -g 1"


def _machines(case: Case) -> tuple[int, int]:
    """Nodes, and GPUs of each."""
    if case.plan:
        cluster = case.plan.question.cluster
        return cluster.num_nodes, cluster.node.gpus_per_node
    tables = [check.stated[0] for check in case.checks]
    if tables:
        largest = max(tables, key=lambda each: (each.n_nodes, each.n_ranks))
        return largest.n_nodes, max(largest.n_ranks // largest.n_nodes, 1)
    for _, log in case.nccl:
        nodes = log.nodes or len(log.hosts) or 1
        return nodes, max((log.ranks or 8 * nodes) // nodes, 1)
    return 2, 8


def fits(plan: RankedPlan) -> str:
    """The `planner fits` line of a plan: by its file, or in full."""
    by_file = plan.question.command("fits")
    return by_file if plan.question.plan_file else fits_command(plan) or by_file


def transports(case: Case) -> str:
    """The nccl-tests line that shows which transport NCCL takes."""
    return nccl_tests(case, variables="NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET,GRAPH")
