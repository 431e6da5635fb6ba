"""Tables of nccl-tests: held against the model of collectives, and what their figures say of the fault."""

import pytest

from planner.answer.diagnosis.records import Strength
from tests.answer.diagnosis.conftest import nccl_tests
from tests.dumps.samples import PUBLIC

PUBLIC_LOGS = PUBLIC / "files" / "nccl-tests"
NODES = ["n1", "n2", "n3", "n4"]


def names(found):
    return [each.cause for each in found.causes]


def test_a_node_as_fast_as_its_like_is_healthy(file, judge):
    found = judge(file("t.log", nccl_tests(["n1"], 450.0, per_host=8)))
    assert found.verdict == "healthy"
    assert found.causes == ()
    each = found.comparisons[0]
    assert each.low < 450 < each.high


def test_two_nodes_at_the_speed_of_sockets_have_fallen_back(file, judge):
    found = judge(file("t.log", nccl_tests(["n1", "n2"], 4.0, per_host=8)))
    assert found.verdict == "TCP fallback"
    assert found.causes[0].strength is Strength.LIKELY
    assert "TCP sockets would give about" in found.causes[0].evidence


def test_sockets_are_no_fallback_where_there_is_nothing_better(file, judge):
    found = judge(file("t.log", nccl_tests(["n1", "n2"], 3.0, per_host=4, gpu="NVIDIA A10")), cluster="2xpcie-8x-a10")
    assert "TCP fallback" not in names(found)


def test_one_adapter_of_eight_is_a_shared_nic(file, judge):
    log = "n1:1:1 [0] NCCL INFO NCCL_IB_HCA set to mlx5_0\nn1:1:1 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]\n"
    log += "n1:1:2 [0] NCCL INFO Channel 00/0 : 8[0] -> 0[0] [receive] via NET/IB/0/GDRDMA\n"
    found = judge(file("t.log", log + nccl_tests(["n1", "n2"], 42.0, per_host=8)), cluster="2xdgx-h100")
    assert found.verdict == "shared NIC"
    assert "NCCL_IB_HCA is mlx5_0, for 8 GPUs" in found.causes[0].evidence
    by_figures = judge(file("u.log", nccl_tests(["n1", "n2"], 42.0, per_host=8)), cluster="2xdgx-h100")
    assert "shared NIC" in names(by_figures)


def test_rdma_through_the_host_is_no_gpu_direct(file, judge):
    log = "n1:1:2 [0] NCCL INFO Channel 00/0 : 8[0] -> 0[0] [receive] via NET/IB/0\n"
    found = judge(file("t.log", log + nccl_tests(["n1", "n2"], 120.0, per_host=8)), cluster="2xdgx-h100")
    assert found.verdict == "no GPUDirect"


def test_nvlink_gpus_at_the_speed_of_host_memory_have_no_peer_access(file, judge):
    found = judge(file("t.log", nccl_tests(["n1"], 3.0, per_host=4, gpu="NVIDIA A100-SXM4-80GB")))
    assert found.verdict == "no peer access"
    disabled = "n1:1:1 [0] NCCL INFO NCCL_P2P_DISABLE set by environment to 1\n"
    shown = judge(file("u.log", disabled + nccl_tests(["n1"], 8.0, per_host=4, gpu="NVIDIA A100-SXM4-80GB")))
    assert (shown.verdict, shown.causes[0].strength) == ("no peer access", Strength.SHOWN)


def test_a_reducing_switch_that_does_not_is_named(file, judge):
    found = judge(file("t.log", nccl_tests(["n1"], 330.0, per_host=8)))
    if found.verdict == "healthy":
        pytest.skip("a ring's bandwidth lies within the interval of a reducing switch")
    assert "NCCL_NVLS_ENABLE" in found.causes[0].setting


def test_the_network_that_is_taken_for_granted_is_said_and_widens_the_interval(file, judge):
    log = file("t.log", nccl_tests(["n1", "n2"], 345.0, per_host=8))
    guessed, told = judge(log).comparisons[0], judge(log, cluster="2xdgx-h100").comparisons[0]
    assert "network taken to be" in guessed.basis
    assert "taken" not in told.basis
    assert guessed.high / guessed.low >= told.high / told.low


def test_a_table_without_an_accelerator_is_named_and_gpu_tells_it(file, judge):
    log = file("t.log", nccl_tests(["n1"], 450.0, per_host=8, gpu=""))
    assert judge(log).comparisons == ()
    assert any("--gpu h100-sxm" in note for note in judge(log).case.notes)
    assert judge(log, gpu="h100-sxm").verdict == "healthy"


def test_the_node_that_all_slow_pairs_share_is_found(file, judge):
    logs = []
    for i, one in enumerate(NODES):
        for other in NODES[i + 1 :]:
            rate = 22.0 if "n3" in (one, other) else 43.0 + 0.1 * i
            logs.append(file(f"{one}_{other}.log", nccl_tests([one, other], rate, collective="sendrecv")))
    found = judge(*logs)
    assert found.verdict == "one bad cable or node"
    assert "node n3 is in all of the slow ones" in found.causes[0].evidence
    assert "node n3" in found.causes[0].setting


def test_one_slow_pair_is_a_cable_and_equal_pairs_are_none(file, judge):
    def logs(name, slow):
        pairs = [(one, other) for i, one in enumerate(NODES) for other in NODES[i + 1 :]]
        rates = {pair: 20.0 if pair == slow else 43.0 for pair in pairs}
        return [
            file(f"{name}/{a}{b}.log", nccl_tests([a, b], rate, collective="sendrecv"))
            for (a, b), rate in rates.items()
        ]

    found = judge(*logs("bad", ("n2", "n4")))
    assert found.verdict == "one bad cable or node"
    assert "n2 and n4" in found.causes[0].evidence
    assert judge(*logs("good", None)).verdict == "healthy"


def test_small_messages_that_take_long_are_named_beside_a_healthy_table(file, judge):
    found = judge(file("t.log", nccl_tests(["n1"], 450.0, per_host=8, small=900.0)))
    assert found.verdict == "healthy"
    assert names(found) == ["slow small messages"]


def test_wrong_results_are_worse_than_slow_ones(file, judge):
    text = nccl_tests(["n1"], 450.0, per_host=8).replace(" 0\n", " 5\n")
    assert "wrong results" in names(judge(file("t.log", text)))


@pytest.mark.parametrize(
    ("name", "verdict"),
    [
        ("gh200_2n_socket_fallback", "TCP fallback"),
        ("dgx_h100_8gpu", "healthy"),
        ("h100_1node_4gpu_info", "healthy"),
        ("h100_4gpu_all_reduce_newhdr", "healthy"),
        ("dgx2_v100_12gpu", "healthy"),
        ("mlperf_h100_8gpu_precheck", "healthy"),
        ("sophia_dgxa100_2n_allreduce", "healthy"),
        ("rtx2080ti_2gpu_pcie", "no peer access"),
        ("rtx4090_4gpu_pcie", "no peer access"),
        ("h100_2n_roce_sendrecv_info", "shared NIC"),
    ],
)
def test_public_logs_come_out_as_what_they_are_known_for(judge, name, verdict):
    path = PUBLIC_LOGS / f"{name}.txt"
    if not path.exists():
        pytest.skip("the collection of public files is not here")
    found = judge(path)
    assert found.verdict == verdict
    if verdict == "no peer access":
        assert "Healthy for that" in found.sentence


def test_a_log_that_was_cut_before_its_large_sizes_shows_latency_only(file, judge):
    whole = nccl_tests(["a"], 440, per_host=8)
    path = file("cut.log", whole[: whole.index("67108864")])
    found = judge(path)
    assert any("up to 16 KiB show latency, not bandwidth" in each for each in found.case.notes)


def test_a_log_of_nccl_on_one_node_does_not_hide_a_port_that_is_down(file, judge):
    log = file("nccl.log", "a:1:1 [0] NCCL INFO comm 0x1 rank 0 nranks 8 cudaDev 0 nNodes 1 - Init COMPLETE\n")
    port = file("ib.txt", "CA 'mlx5_0'\n\tPort 1:\n\t\tState: Down\n\t\tPhysical state: Disabled\n\t\tRate: 400\n")
    assert judge(log, port).verdict == "port down"
