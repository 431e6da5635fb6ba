import re
from dataclasses import replace

import pytest

from planner import Choices, recommend
from planner.answer.emission import emission
from planner.answer.plan_files import plan_file_of
from planner.catalogue.hardware import network


def with_network(contents, name):
    """The same plan on another network."""
    return replace(contents, cluster=contents.cluster.with_fabric(network(name)))


@pytest.fixture
def exported(text_of):
    """The variables that launch.sh sets, by name."""

    def found(contents):
        text = text_of(contents, "torchrun", "launch.sh")
        assert len(re.findall(r"^\[\[ -v", text, re.M)) == len(re.findall(r"^# .+\n\[\[ -v", text, re.M))
        return dict(re.findall(r"^\[\[ -v \w+ \]\] \|\| export (\w+)=(.+)$", text, re.M)), text

    return found


@pytest.mark.parametrize("case", ["two consumer cards", "eight A100 on PCIe"])
def test_one_machine_needs_nothing_of_the_network(exported, plan, case):
    variables, text = exported(plan(case))
    assert variables.keys() == {"OMP_NUM_THREADS", "PYTORCH_ALLOC_CONF"}
    assert "NCCL_IB_HCA" not in text


def test_infiniband_stops_where_no_adapter_is(exported, plan):
    variables, text = exported(plan("128 nodes with InfiniBand"))
    assert variables["NCCL_NET"] == "IB"
    assert "NCCL_IB_GID_INDEX" not in text
    assert '== InfiniBand && $(< "$port/rate") == "400 "*' in text


def test_roce_stays_on_verbs_and_its_gid_index_is_a_remark(exported, plan):
    variables, text = exported(plan("four nodes with RoCE"))
    assert variables["NCCL_NET"] == "IB"
    assert "NCCL_IB_DISABLE" not in text
    assert re.search(r"^#.*NCCL_IB_GID_INDEX", text, re.M)
    assert not re.search(r"^[^#]*NCCL_IB_GID_INDEX", text, re.M)
    assert '== Ethernet && $(< "$port/rate") == "400 "*' in text


@pytest.mark.parametrize("name", ["efa-3200", "slingshot-200"])
def test_libfabric_networks_stop_where_the_plugin_is_missing(exported, plan, name):
    variables, text = exported(with_network(plan("four nodes with RoCE"), name))
    assert variables["NCCL_NET"] == "'AWS Libfabric'"
    assert "NCCL_IB_HCA" not in text


def test_tcp_has_no_guard(exported, plan):
    variables, _ = exported(with_network(plan("four nodes with RoCE"), "tcp-100"))
    assert variables.keys() == {"OMP_NUM_THREADS", "PYTORCH_ALLOC_CONF", "NCCL_SOCKET_IFNAME"}


def test_what_is_set_already_stays(plan, folder_of, bench):
    folder = folder_of(plan("four nodes with RoCE"), "torchrun")
    own = {"NCCL_NET": "IBext", "NCCL_SOCKET_IFNAME": "=eth1", "OMP_NUM_THREADS": "4", "NCCL_IB_HCA": "=a:1"}
    result = bench(folder / "launch.sh", "--device", "cpu", HEAD="a", **own)
    assert {f"{name}={value}" for name, value in own.items()} <= set(result.stdout.splitlines())


def ports(folder, **devices):
    """A stand-in for /sys/class/infiniband: name -> (state, link layer, rate)."""
    for name, (state, layer, rate) in devices.items():
        port = folder / name / "ports" / "1"
        port.mkdir(parents=True)
        (port / "state").write_text(f"{state}\n")
        (port / "link_layer").write_text(f"{layer}\n")
        (port / "rate").write_text(f"{rate}\n")


def test_adapters_are_those_of_the_network_by_exact_names(plan, folder_of, bench, tmp_path):
    up = "4: ACTIVE"
    ports(
        tmp_path / "sys",
        mlx5_0=(up, "Ethernet", "400 Gb/sec (4X NDR)"),
        mlx5_10=(up, "Ethernet", "400 Gb/sec (4X NDR)"),
        mlx5_1=("1: DOWN", "Ethernet", "400 Gb/sec (4X NDR)"),
        mlx5_2=(up, "InfiniBand", "400 Gb/sec (4X NDR)"),
        mlx5_3=(up, "Ethernet", "40 Gb/sec (4X QDR)"),
        mlx5_bond_0=(up, "Ethernet", "100 Gb/sec (4X EDR)"),
    )
    folder = folder_of(plan("four nodes with RoCE"), "torchrun")
    script = (folder / "launch.sh").read_text().replace("/sys/class/infiniband", str(tmp_path / "sys"))
    (folder / "launch.sh").write_text(script)
    result = bench(folder / "launch.sh", "--device", "cpu", HEAD="a")
    assert "NCCL_IB_HCA==mlx5_0:1,mlx5_10:1" in result.stdout.splitlines()
    assert result.stderr == ""


def test_a_node_with_fewer_adapters_than_planned_says_so(plan, folder_of, bench):
    folder = folder_of(plan("four nodes with RoCE"), "torchrun")
    (bench.programs / "python3").write_text("#!/bin/sh\necho 8\n")
    (bench.programs / "python3").chmod(0o755)
    result = bench(folder / "launch.sh", HEAD="a")
    assert result.returncode == 0
    assert "has 0 Ethernet ports at 400 Gb/s, the plan counts on 8; NCCL_IB_HCA says which to use" in result.stderr
    assert "NCCL_IB_HCA" not in result.stdout


@pytest.mark.parametrize(("cluster", "expected"), [("1xdgx-h100", True), ("1xperlmutter", False)])
def test_processes_are_bound_where_there_are_several_sockets(cluster, expected, tmp_path):
    contents = plan_file_of(recommend("llama-3.2-1b", cluster, Choices(target="pytorch"), top=1).best)
    assert ("--numa-binding" in emission(contents, "pytorch", tmp_path).files["launch.sh"]) == expected


def test_no_binding_without_gpus(plan, folder_of, bench, arguments):
    (bench.programs / "numactl").write_text("#!/bin/sh\n")
    (bench.programs / "numactl").chmod(0o755)
    folder = folder_of(plan("eight A100 on PCIe"), "torchrun")
    assert "--numa-binding" not in arguments(bench(folder / "launch.sh", "--device=cpu"))
    (bench.programs / "python3").write_text("#!/bin/sh\necho 8\n")
    (bench.programs / "python3").chmod(0o755)
    assert "--numa-binding" in arguments(bench(folder / "launch.sh"))
