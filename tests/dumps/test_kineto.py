"""Traces of torch's profiler: built event by event, made by torch itself, torn, packed and hostile."""

import gzip
import json
import zlib

import pytest

from planner.dumps import kineto
from planner.dumps.kineto import file_text, is_trace, read_trace
from planner.dumps.kineto_steps import trace_steps
from planner.errors import FileFormatError

MS = 1000.0
"""Microseconds, in which traces count."""


def event(cat, name, start, length, **args):
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "pid": 1,
        "tid": 1,
        "ts": start * MS,
        "dur": length * MS,
        "args": args,
    }


def launched(number, name, at, start, length, cat="kernel", **args):
    """A kernel and the call that launched it."""
    return [
        event("cuda_runtime", "cudaLaunchKernel", at, 0.01, correlation=number),
        event(cat, name, start, length, correlation=number, **args),
    ]


def device_trace(**others):
    """Two steps on a device, 100 ms each, the host 5 ms ahead: the first's kernels begin at 5, the second's at 105."""
    events = [event("user_annotation", f"ProfilerStep#{n}", 100 * (n - 2), 100) for n in (2, 3)]
    for step in range(2):
        base, number = 100 * step, 100 * step
        kernels = [
            ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n", 5, 40),
            ("void flash_fwd_kernel<Flash_fwd_kernel_traits>", 45, 10),
            ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 40, 25),
            ("void at::native::vectorized_elementwise_kernel<4>", 65, 10),
            ("ncclDevKernel_Generic", 75, 10),
        ]
        for index, (name, start, length) in enumerate(kernels):
            told = {"Collective name": "reduce_scatter"} if "Generic" in name else {}
            events += launched(number + index + 1, name, base + 0.1 * index, base + start, length, **told)
        events += launched(number + 50, "Memcpy HtoD", base + 90, base + 95, 5, cat="gpu_memcpy")
    return {"traceEvents": events, "deviceProperties": [{"name": "NVIDIA H100"}], **others}


def test_a_step_on_the_device_is_divided_by_what_its_kernels_are_for():
    trace = read_trace(json.dumps(device_trace(distributedInfo={"world_size": 8})))
    assert (trace.device, trace.ranks, trace.torn) == ("NVIDIA H100", 8, False)
    steps = trace_steps(trace)
    assert steps.numbers == (2, 3)
    assert steps.seconds[0] == pytest.approx(0.100)
    assert steps.busy.kinds == pytest.approx(
        {"matrix products": 0.040, "attention": 0.010, "element-wise": 0.010, "copies": 0.005}
    )
    assert steps.busy.collectives == pytest.approx({"all_gather": 0.025, "reduce_scatter": 0.010})
    assert steps.busy.communication == pytest.approx(0.035)
    assert steps.busy.exposed == pytest.approx(0.010 + 0.010)  # 55 to 65 and 75 to 85 ms
    # Both windows are idle from 85 to 95 ms; the second ends with its copy, the first with the second's first kernel.
    assert steps.busy.idle == pytest.approx((0.015 + 0.010) / 2, abs=1e-4)
    # The copy was launched at 90 ms, 5 ms after the device had nothing to do.
    assert steps.busy.host_bound == pytest.approx(0.005, abs=1e-3)


def test_kernels_belong_to_the_step_that_launched_them_however_late_they_run():
    events = [event("user_annotation", f"ProfilerStep#{n}", 10 * n, 10) for n in (1, 2)]
    events += launched(1, "gemm", 11, 30, 50) + launched(2, "gemm", 21, 80, 50)
    steps = trace_steps(read_trace(json.dumps({"traceEvents": events})))
    assert steps.seconds == pytest.approx((0.050, 0.050))
    assert steps.busy.kinds == pytest.approx({"matrix products": 0.050})


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("nvjet_tst_128x256_64x4_2x1_v_bz_coopA_TNT", "matrix products"),
        ("Cijk_Ailk_Bljk_BBS_BH_MT256x256x32", "matrix products"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm>", "matrix products"),
        ("fmha_cutlassF_bf16_aligned_64x128_rf_sm80", "attention"),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_bprop", "attention"),
        ("triton_tem_fused_flex_attention_0", "attention"),
        ("triton_poi_fused_add_mul_silu_3", "element-wise"),
        ("void at::native::(anonymous)::multi_tensor_apply_kernel", "element-wise"),
    ],
)
def test_kernels_are_known_by_their_names(name, kind):
    events = [event("user_annotation", "ProfilerStep#5", 0, 10), *launched(1, name, 1, 2, 3)]
    assert trace_steps(read_trace(json.dumps(events))).busy.kinds == pytest.approx({kind: 0.003})


@pytest.mark.parametrize(
    ("name", "collective"),
    [
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "all_reduce"),
        ("ncclKernel_ReduceScatter_RING_LL_Sum_float(ncclWorkElem)", "reduce_scatter"),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "send_recv"),
        ("ncclDevKernel_Broadcast_RING_LL", "broadcast"),
    ],
)
def test_collectives_are_told_apart(name, collective):
    events = [event("user_annotation", "ProfilerStep#5", 0, 10), *launched(1, name, 1, 2, 3)]
    assert trace_steps(read_trace(json.dumps(events))).busy.collectives == pytest.approx({collective: 0.003})


def test_torch_writes_what_is_read_here(tmp_path):
    torch = pytest.importorskip("torch")
    from torch.profiler import ProfilerActivity, profile, schedule

    layer, path = torch.nn.Linear(256, 256), tmp_path / "trace.json.gz"
    heads = torch.randn(2, 4, 64, 32)
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=1, warmup=1, active=3, repeat=1),
        on_trace_ready=lambda made: made.export_chrome_trace(str(path)),
    ) as profiler:
        for _ in range(5):
            torch.nn.functional.scaled_dot_product_attention(heads, heads, heads)
            layer(torch.randn(512, 256)).relu().sum().backward()
            profiler.step()
    text = file_text(path)
    assert is_trace(text)
    steps = trace_steps(read_trace(text))
    assert steps.numbers == (2, 3, 4)
    assert not steps.on_device
    assert set(steps.busy.kinds) == {"matrix products", "attention", "element-wise"}
    assert sum(steps.busy.kinds.values()) + steps.busy.idle == pytest.approx(sum(steps.seconds) / 3, rel=0.7)
    assert 0 < steps.busy.kinds["matrix products"] < max(steps.seconds)


def test_a_torn_trace_gives_the_steps_before_the_tear(tmp_path):
    text = json.dumps(device_trace())
    trace = read_trace(text[: int(0.7 * len(text))])
    assert trace.torn
    assert trace_steps(trace).numbers[0] == 2
    packed = gzip.compress(text.encode())
    path = tmp_path / "torn.json.gz"
    path.write_bytes(packed[: len(packed) // 2])
    assert read_trace(file_text(path)).torn


def test_several_members_of_a_packed_file_are_one_text(tmp_path):
    path = tmp_path / "two.json.gz"
    path.write_bytes(gzip.compress(b"[1,") + gzip.compress(b"2]") + b"rubbish")
    assert file_text(path) == "[1,2]"


def test_a_packed_bomb_is_refused_before_it_is_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr(kineto, "MOST_UNPACKED", 2**22)
    packer = zlib.compressobj(9, wbits=31)
    data = b"".join(packer.compress(bytes(2**20)) for _ in range(2**6)) + packer.flush()
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(data)
    assert len(data) < 2**20
    with pytest.raises(FileFormatError, match="unpacks to more than 4 MiB"):
        file_text(path)


def test_a_file_that_is_too_large_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(kineto, "MOST_PACKED", 100)
    path = tmp_path / "large.json"
    path.write_bytes(bytes(200))
    with pytest.raises(FileFormatError, match="profile fewer steps"):
        file_text(path)


STEP = '{"ph":"X","cat":"user_annotation","name":"ProfilerStep#1","ts":0,"dur":9}'
HOSTILE = {
    "nesting": '{"traceEvents": [' + "[" * 100_000,
    "no events": '{"traceEvents": []}',
    "wrong types": '{"traceEvents": [1, "x", null, {"cat": [], "name": {}, "ts": "a"}, [[]]]}',
    "endless numbers": '{"traceEvents": [{"cat": "kernel", "name": "k", "ts": ' + "9" * 10_000 + ', "dur": 1}]}',
    "infinite times": '{"traceEvents": [{"cat": "kernel", "name": "k", "ts": Infinity, "dur": NaN}]}',
    "steps of no length": '{"traceEvents": [{"cat":"user_annotation","name":"ProfilerStep#1","ts":5,"dur":0}]}',
    "steps of huge numbers": '{"traceEvents": [' + STEP.replace("#1", "#99999999999") + "]}",
    "a step and no work": '{"traceEvents": ['
    + STEP
    + '], "deviceProperties": 3, "distributedInfo": {"world_size": "x"}}',
    "many marks": '{"traceEvents": [' + ",".join([STEP] * 10_000) + "]}",
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_traces_neither_crash_nor_invent_steps(kind):
    assert is_trace(HOSTILE[kind])
    steps = trace_steps(read_trace(HOSTILE[kind]))
    whole = kind in ("a step and no work", "many marks")
    assert (steps.numbers == (1,)) if whole else steps is None


def test_other_json_is_no_trace():
    for text in ("", "{}", "[]", '{"plan": {}}', "step 1 | loss 2.0", "[rank0]: step 1"):
        assert not is_trace(text)
