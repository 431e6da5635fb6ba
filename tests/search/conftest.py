"""Small and real questions for the search's tests."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from planner.quantities import GIB
from planner.search.problem import Problem
from planner.spec.accelerator import Accelerator
from planner.spec.cluster import Cluster, Fabric, Node, Pool, Wiring
from planner.spec.model import Attention, Experts, Layer, Mlp, Model
from planner.spec.stack import Stack
from planner.spec.workload import Workload

H100 = Accelerator("h100-sxm", "nvidia", "hopper", 80 * GIB, 79.1 * GIB, 3.35e12, {"bf16": 989e12}, 132, 64e9)
INFINIBAND = Fabric("ib-ndr400", "infiniband", nics_per_node=8, nic_bandwidth=50e9, latency=2e-6)
DGX = Node("dgx-h100", H100, 8, Wiring.SWITCH, "nvlink4", 450e9, 1e-6, INFINIBAND)


def dense_model(layers, hidden, heads, kv_heads, intermediate, vocab=128256):
    block = Layer(Attention(heads, kv_heads, hidden // heads), Mlp(intermediate))
    return Model(f"dense-{layers}x{hidden}", hidden, vocab, (block,) * layers)


def mixture_model(layers, hidden, heads, kv_heads, experts, expert_size):
    block = Layer(Attention(heads, kv_heads, hidden // heads), None, Experts(experts, 2, Mlp(expert_size)))
    return Model(f"moe-{layers}x{hidden}x{experts}", hidden, 32000, (block,) * layers)


def dgx_nodes(count, *, gpus=8, fabric=INFINIBAND, **node):
    return Cluster(f"{count}x{gpus}", (Pool(replace(DGX, gpus_per_node=gpus, fabric=fabric, **node), count),))


@pytest.fixture(scope="session")
def models():
    return SimpleNamespace(
        llama_8b=dense_model(32, 4096, 32, 8, 14336),
        llama_70b=dense_model(80, 8192, 64, 8, 28672),
        llama_405b=dense_model(126, 16384, 128, 8, 53248),
        gpt_175b=dense_model(96, 12288, 96, 96, 4 * 12288, vocab=51200),
        qwen2_7b=dense_model(28, 3584, 28, 4, 18944, vocab=152064),
        mixtral=mixture_model(32, 4096, 32, 8, 8, 14336),
    )


@pytest.fixture(scope="session")
def dense():
    return dense_model


@pytest.fixture(scope="session")
def mixture():
    return mixture_model


@pytest.fixture(scope="session")
def nodes():
    return dgx_nodes


@pytest.fixture(scope="session")
def stack():
    return Stack("torch")


@pytest.fixture(scope="session")
def problem(stack):
    def problem_of(model, cluster=None, workload=None, stack=stack):
        return Problem.of(model, cluster or dgx_nodes(1), workload or Workload(1024, 4096), stack)

    return problem_of


@pytest.fixture(scope="session")
def rows_of():
    """Plans as a list of tuples, to count and compare."""

    def rows(plans):
        return list(zip(*(np.asarray(column).tolist() for column in plans.columns().as_dict().values()), strict=True))

    return rows
