"""Logs of trainers: lines as the frameworks print them, the figures in them."""

import pytest

from planner.dumps.run_records import MEMORY, QUANTITIES, warm_up
from planner.dumps.text import plain_text
from planner.dumps.training_logs import read_training_log
from planner.quantities import GIB

TITAN = (
    "[rank0]:[titan] 2025-01-01 12:00:00,123 - root - INFO - \x1b[31mstep: {step:2}  \x1b[32mloss:  7.2345  "
    "\x1b[38;2;180;60;0mgrad_norm:  4.1000  \x1b[38;2;54;234;195mmemory: 40.25GiB(50.88%)  \x1b[34mtps: {tps:,}  "
    "\x1b[36mtflops: 412.36  \x1b[35mmfu: 41.69%\x1b[39m\n"
)
MEGATRON = (
    " [2024-05-01 12:00:00.123456] iteration {step:8}/     100 | consumed samples:         1280 | elapsed time per "
    "iteration (ms): {ms:.1f} | throughput per GPU (TFLOP/s/GPU): 412.3 | learning rate: 1.000000E-04 | global batch "
    "size:   128 | lm loss: 1.042E+01 | loss scale: 1.0 | grad norm: 1.200 | number of nan iterations:   0 |\n"
)
LINES = {
    "nanotron": (
        "09/01/2024 12:00:00 [INFO|DP=0|PP=0|TP=0|ip-1]: iteration: 10 / 100 | consumed_tokens: 10.5M | "
        "elapsed_time_per_iteration_ms: 1.23K | tokens_per_sec: 42.6K | tokens_per_sec_per_gpu: 5.33K | "
        "global_batch_size: 1.02M | lm_loss: 10.5 | model_tflops_per_gpu: 132 | hardware_tflops_per_gpu: 140 | "
        "cuda_max_memory_reserved: 13.4G",
        {
            "tokens_per_s": 42600,
            "tokens_per_s_per_gpu": 5330,
            "step_time": 1.23,
            "flops_per_gpu": 132e12,
            "reserved": 13.4e9,
        },
    ),
    "picotron": (
        "[rank 0] Step: 5     | Loss: 10.2348 | Global batch size:    8.2K | Tokens/s:   12.3K | Tokens/s/GPU:    1.5K "
        "| Tokens:   40.0K | MFU: 12.30% | Memory usage: 23.50GB",
        {"tokens_per_s": 12300, "tokens_per_s_per_gpu": 1500, "mfu": 0.123, "reserved": 23.5e9},
    ),
    "nanoGPT": ("iter 100: loss 3.1234, time 345.61ms, mfu 34.51%", {"step_time": 0.34561, "mfu": 0.3451}),
    "llm.c": (
        "step   10/100 | loss 3.2 (+nanz)| lr 1e-4 | 345.67 ms | 45.6% bf16 MFU | 123456 tok/s",
        {"tokens_per_s": 123456, "mfu": 0.456},
    ),
    "build-nanogpt": (
        "step    10 | loss: 6.5 | lr 1.0e-4 | norm: 1.2 | dt: 345.23ms | tok/sec: 150432.12",
        {"tokens_per_s": 150432.12, "step_time": 0.34523},
    ),
    "DeepSpeed": (
        "[2024-01-01 12:00:00,123] [INFO] [timer.py:258:stop] epoch=0/micro_step=10/global_step=10, "
        "RunningAvgSamplesPerSec=12.3, CurrSamplesPerSec=13.1, MemAllocated=12.3GB, MaxMemAllocated=34.5GB",
        {"samples_per_s": 13.1, "allocated": 34.5 * GIB},
    ),
    "torchtune": (
        "Step 10 | loss:1.2 lr:2e-05 tokens_per_second_per_gpu:5432.1 peak_memory_active:12.3 peak_memory_alloc:12.3 "
        "peak_memory_reserved:14.2",
        {"tokens_per_s_per_gpu": 5432.1, "allocated": 12.3 * GIB, "reserved": 14.2 * GIB},
    ),
    "axolotl": (
        "{'loss': 1.2, 'memory/max_active (GiB)': 20.1, 'memory/max_allocated (GiB)': 20.2, "
        "'memory/device_reserved (GiB)': 22.5, 'tokens/train_per_sec_per_gpu': 4321.0, 'epoch': 0.1}",
        {"tokens_per_s_per_gpu": 4321, "allocated": 20.2 * GIB, "reserved": 22.5 * GIB},
    ),
    "Composer": (
        "\t Train throughput/tokens_per_sec: 123456.7\n\t Train throughput/device/tokens_per_sec: 15432.1\n"
        "\t Train throughput/device/mfu: 0.4321",
        {"tokens_per_s": 123456.7, "tokens_per_s_per_gpu": 15432.1, "mfu": 0.4321},
    ),
    "NeMo": (
        "Training epoch 0, iteration 10/99 | lr: 1e-05 | global_batch_size: 128 | global_step: 10 | "
        "reduced_train_loss: 10.5 | train_step_timing in s: 3.456 | consumed_samples: 1408",
        {"step_time": 3.456},
    ),
    "litgpt": (
        "Epoch 1 | iter 10 step 10 | loss train: 3.245, val: n/a | iter time: 345.67 ms (step) remaining: 0:10:00",
        {"step_time": 0.34567},
    ),
    "nvidia-smi": (
        "|  30%   45C    P2             250W / 350W |  23012MiB / 24564MiB |    100%      Default |",
        {"device": 23012 * 2**20},
    ),
    "a line of its own": ("throughput 9,876 tokens/sec on all", {"tokens_per_s": 9876}),
}


@pytest.mark.parametrize("name", LINES)
def test_a_line_of_each_trainer_gives_its_figures(name):
    text, figures = LINES[name]
    log = read_training_log(text)
    assert log.readings.keys() <= QUANTITIES.keys()
    assert {quantity: log.typical(quantity) for quantity in log.readings} == pytest.approx(figures)


def test_torchtitan_counts_the_tokens_of_one_gpu():
    text = "".join(TITAN.format(step=step, tps=100 if step < 3 else 7000 + step) for step in range(1, 21))
    log = read_training_log(plain_text(text))
    assert log.trainer == "torchtitan"
    assert log.typical("tokens_per_s_per_gpu") == pytest.approx(7012, abs=3)
    assert log.typical("reserved") == pytest.approx(40.25 * GIB)
    assert log.typical("mfu") == pytest.approx(0.4169)
    assert log.readings["mfu"][4].step == 5


def test_the_same_lines_of_other_ranks_and_lines_between_change_nothing():
    lines = [TITAN.format(step=step, tps=7000) for step in range(1, 9)]
    noisy = [f"[rank{rank}]:{line}some warning\n" for line in lines for rank in range(4)]
    alone, together = (read_training_log(plain_text("".join(text))) for text in (lines, noisy))
    assert together.typical("tokens_per_s_per_gpu") == alone.typical("tokens_per_s_per_gpu") == 7000


def test_megatron_tells_its_batch_and_the_memory_of_a_rank():
    text = "".join(MEGATRON.format(step=step, ms=9000 if step < 3 else 5400 + step) for step in range(1, 12))
    text += " [Rank 0] (after 2 iterations) memory (MB) | allocated: 12345.67 | max allocated: 23456.78 | reserved: "
    text += "25000.0 | max reserved: 26000.0\n"
    log = read_training_log(text)
    assert (log.trainer, log.global_batch_size) == ("Megatron-LM", 128)
    assert log.typical("step_time") == pytest.approx(5.4075, abs=1e-3)
    assert log.typical("allocated") == pytest.approx(23456.78 * 2**20)
    assert log.typical("reserved") == pytest.approx(26000 * 2**20)


def test_only_the_progress_bar_of_training_counts():
    text = (
        "Loading checkpoint shards: 100%|████| 4/4 [00:10<00:00,  2.51s/it]\n"
        "Map: 100%|████| 1000/1000 [00:01<00:00, 900.00 examples/s]\n"
        " 10%|█         | 100/1000 [05:23<48:32,  3.24s/it]\r 11%|█         | 101/1000 [05:26<48:32,  3.26s/it]\n"
        "{'train_runtime': 123.4, 'train_samples_per_second': 12.3, 'train_steps_per_second': 0.77, 'epoch': 1.0}\n"
    )
    log = read_training_log(plain_text(text))
    assert log.trainer == "Hugging Face Trainer"
    assert log.typical("step_time") == 3.26
    assert log.typical("samples_per_s") == 12.3
    assert read_training_log(" 10%|█   | 10/100 [00:23<00:32,  4.00it/s]").typical("step_time") == 0.25


def test_the_records_of_the_planners_own_trainer_are_read_key_by_key():
    text = (
        '{"event": "start", "mesh": "dp 2", "device": "NVIDIA H100 80GB HBM3", "world_size": 2}\n'
        '{"event": "step", "step": 0, "step_time_s": 2.0, "tokens_per_s": 100.0, "loss": 5.0, "peak_reserved_gib": 3}\n'
        '{"event": "step", "step": 1, "step_time_s": 0.5, "tokens_per_s": 400.0, "loss": 5.0, "peak_reserved_gib": 4}\n'
        '{"event": "summary", "steps": 1, "step_time_s": 0.5, "tokens_per_s": 400.0, "peak_reserved_gib": 5.0, '
        '"predicted": {"step_time_s": 0.4, "step_time_interval_s": [0.3, 0.6], "level": "datasheet"}}\n'
    )
    log = read_training_log(text)
    assert (log.world_size, log.device) == (2, "NVIDIA H100 80GB HBM3")
    assert log.typical("step_time") == 0.5
    assert log.typical("reserved") == 5 * GIB
    assert log.predicted == {"step_time_s": 0.4, "step_time_low_s": 0.3, "step_time_high_s": 0.6}


def test_warm_up_leaves_at_least_half_of_a_short_log_and_ten_steps_at_most():
    assert [warm_up(steps) for steps in (0, 1, 2, 5, 20, 100, 10_000)] == [0, 0, 1, 2, 3, 10, 10]


def test_the_fullest_of_all_counts_of_memory():
    log = read_training_log("max allocated: 10.0 | max reserved: 20.0\nmax allocated: 9.0 | max reserved: 15.0\n")
    assert set(MEMORY) > log.readings.keys()
    assert log.typical("reserved") == 20 * 2**20


@pytest.mark.parametrize(
    "text", ["", "epoch 1 done\n", '{"event": 3}\n', "tokens/s: -\n", "{" * 5000, "step 5 " * 9000]
)
def test_what_has_no_figures_is_no_log(text):
    assert read_training_log(text) is None
