"""How trainers spell their figures: a pattern for each spelling, and the unit that it means.

As torchtitan 0.2 and 0.3, Megatron-LM, nanotron, DeepSpeed, transformers, torchtune, picotron, axolotl, llm-foundry,
NeMo, litgpt and nanoGPT print them.
"""

from __future__ import annotations

import re

from planner.quantities import GIB

NUMBER = r"(?P<number>\d[\d,]{0,20}(?:\.\d{0,12})?(?:[eE][-+]?\d{1,3})?)"
IS = r"[\"']?\s{0,4}(?:[:=]\s{0,12}|\s)[\"']?"
TOKENS = r"(?:tokens?|toks?)"
PER_SECOND = r"(?:/|_per_|[ _/]per[ _])s(?:ec(?:onds?)?)?"
PER_GPU = r"(?:/|_per_|[ _/]per[ _])(?:gpu|device|rank)"
LETTERS = r"\s?(?P<unit>[KMBGT](?![a-zA-Z])|)"
SIZE = r"\s?(?P<unit>[KMGT]i?B|[KMGT](?![a-zA-Z])|)"
TIME = r"\s?(?P<unit>ms|us|s(?![a-z])|)"
PERCENT = r"\s?(?P<unit>%|)"

SCALES = {
    "": 1.0,
    "%": 0.01,
    "K": 1e3,
    "M": 1e6,
    "B": 1e9,
    "G": 1e9,
    "T": 1e12,
    "KB": 1e3,
    "MB": 1e6,
    "GB": 1e9,
    "TB": 1e12,
    "KiB": 2.0**10,
    "MiB": 2.0**20,
    "GiB": GIB,
    "TiB": 2.0**40,
    "us": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
}

SPELLINGS: tuple[tuple[str, str, str, float], ...] = (
    ("tokens_per_s_per_gpu", "tok", rf"\b{TOKENS}(?:/train_per_sec|{PER_SECOND}){PER_GPU}{IS}{NUMBER}{LETTERS}", 1.0),
    ("tokens_per_s_per_gpu", "device/tok", rf"\bdevice/tokens_per_sec{IS}{NUMBER}", 1.0),
    ("tokens_per_s_per_gpu", "tgs", rf"\btgs(?: \(tokens/gpu/second\))?{IS}{NUMBER}", 1.0),
    ("tokens_per_s_per_gpu", "tok", rf"\b{NUMBER}{LETTERS}\s{{0,2}}{TOKENS}/s(?:ec)?/(?:gpu|device)\b", 1.0),
    ("tps", "ps", rf"\b[tw]ps{IS}{NUMBER}", 1.0),
    ("tokens_per_s", "tok", rf"(?<!device/)\b(?:train_)?{TOKENS}{PER_SECOND}(?!{PER_GPU}){IS}{NUMBER}{LETTERS}", 1.0),
    ("tokens_per_s", "tok", rf"\b{NUMBER}{LETTERS}\s{{0,2}}{TOKENS}/s(?:ec(?:ond)?)?(?!/(?:gpu|device))\b", 1.0),
    ("samples_per_s", "sample", rf"\b(?:train_)?samples?{PER_SECOND}(?!{PER_GPU}){IS}{NUMBER}", 1.0),
    ("samples_per_s", "samplespersec", rf"\bCurrSamplesPerSec={NUMBER}", 1.0),
    ("samples_per_s", "s/s", rf"\b{NUMBER}\s{{0,2}}(?:samples|sequences)/s(?:ec)?\b", 1.0),
    ("step_time", "elapsed", rf"\belapsed[ _]time[ _]per[ _]iteration(?:_ms| ?\(ms\)){IS}{NUMBER}{LETTERS}", 1e-3),
    ("step_time", "time_ms", rf"\b(?:step|iter(?:ation)?)[_ ]time_ms{IS}{NUMBER}", 1e-3),
    ("step_time", "time", rf"\b(?:step|iter(?:ation)?|batch)[_ ]time(?:_s|_sec)?(?: ?\(s\))?{IS}{NUMBER}{TIME}", 1.0),
    ("step_time", "timing", rf"\btrain_step_timing(?: in s)?{IS}{NUMBER}", 1.0),
    ("step_time", "dt", rf"\bdt{IS}{NUMBER}{TIME}", 1.0),
    ("step_time", "iter ", rf"\biter \d{{1,9}}: loss [\d.]{{1,12}}, time {NUMBER}{TIME}", 1.0),
    ("step_time", "loss ", rf"\bloss [\d.]{{1,12}}, {NUMBER}{TIME}, ", 1.0),
    ("step_time", "s/", rf"(?<=, )\s{{0,6}}{NUMBER}s/(?:it|step)\b", 1.0),
    ("steps_per_s", "/s", rf"(?<=, )\s{{0,6}}{NUMBER}(?:it|step)s?/s\b", 1.0),
    ("steps_per_s", "steps_per", rf"\btrain_steps_per_second{IS}{NUMBER}", 1.0),
    ("flops_per_gpu", "flop", rf"\bTFLOP/s/GPU\){IS}{NUMBER}", 1e12),
    ("flops_per_gpu", "flop", rf"(?<!hardware_)\b(?:model_)?tflops(?:[_/ ]per[_ ]gpu|/gpu|/s/gpu)?{IS}{NUMBER}", 1e12),
    ("mfu", "mfu", rf"\bmfu{IS}{NUMBER}{PERCENT}", 1.0),
    ("mfu", "mfu", rf"\b{NUMBER}{PERCENT}\s(?:bf16\s|fp16\s)?MFU\b", 1.0),
    ("reserved", "memory", rf"\bmemory{IS}{NUMBER}(?P<unit>[GM]iB)\(", 1.0),
    ("reserved", "reserved", rf"\bmax[_ ]reserved{IS}{NUMBER}", 2.0**20),
    ("reserved", "memory", rf"\b(?:cuda_max_memory_reserved|memory usage){IS}{NUMBER}{SIZE}", 1.0),
    ("reserved", "memory", rf"\bpeak_memory_reserved{IS}{NUMBER}", GIB),
    ("reserved", "memory", rf"\bmemory/device_(?:mem_)?reserved ?\(gib\){IS}{NUMBER}", GIB),
    ("reserved", "max_ca", rf"\bMax_CA {NUMBER} GB", GIB),
    ("allocated", "allocated", rf"(?<!_)\bmax[_ ]allocated{IS}{NUMBER}", 2.0**20),
    ("allocated", "maxmem", rf"\bMaxMemAllocated={NUMBER}GB", GIB),
    ("allocated", "memory", rf"\bpeak_memory_alloc(?:ated)?{IS}{NUMBER}", GIB),
    ("allocated", "memory", rf"\bmemory/max_(?:mem_)?allocated ?\(gib\){IS}{NUMBER}", GIB),
    ("allocated", "max_ma", rf"\bMax_MA {NUMBER} GB", GIB),
    ("device", "mib", rf"\|\s{{0,20}}{NUMBER}(?P<unit>MiB) ?/ ?\d{{1,7}}MiB", 1.0),
)
"""Quantity, letters that a line with it has (in lower case), spelling, and the size of its unit.

`tps` is of one GPU in torchtitan and of all elsewhere.
"""
PATTERNS = tuple(
    (name, hint, re.compile(pattern, re.ASCII | re.IGNORECASE), size) for name, hint, pattern, size in SPELLINGS
)
STEP = re.compile(
    r"(?:\b(?:global[_ ])?step|\biteration|\biter)[\"']?\s{0,8}[:=]?\s{0,12}(?P<number>\d{1,9})\b"
    r"|\b(\d{1,9})/\d{1,9} \[",
    re.ASCII | re.IGNORECASE,
)
BATCH = re.compile(r"\bglobal batch size:\s{0,12}(\d{1,9})(?![\w.])", re.ASCII | re.IGNORECASE)
WORLD = re.compile(r"\bworld[_ ]size[\"']?\s{0,4}[:=.]{1,60}\s{0,4}(\d{1,7})\b", re.ASCII | re.IGNORECASE)
DEVICE = re.compile(r"\b(?:NVIDIA|AMD Instinct|Tesla|GeForce) [A-Z][\w-]{1,20}(?: [\w-]{1,12}){0,3}", re.ASCII)
BAR = re.compile(r"(?P<head>[^|%\n]{0,80}?)\d{1,3}%\|")
TRAINERS = (
    (
        "the planner's own trainer",
        ('"event"', "step "),
        re.compile(r'"event": "(?:start|step|summary)"|^step \d+: loss [\d.]+, [\d.]+ s, '),
    ),
    ("torchtitan", ("tps:", "titan"), re.compile(r"\bstep:\s{1,3}\d+\s.*\btps:|\[titan\]|torchtitan")),
    ("Megatron-LM", ("consumed samples",), re.compile(r"\biteration\s+\d+/\s*\d+ \| consumed samples:")),
    (
        "nanotron",
        ("consumed_tokens", "elapsed_time_per"),
        re.compile(r"\bconsumed_tokens: |elapsed_time_per_iteration_ms"),
    ),
    (
        "DeepSpeed",
        ("RunningAvg", "deepspeed", "DeepSpeed", "Max_MA"),
        re.compile(r"RunningAvgSamplesPerSec=|\[deepspeed\]|Max_MA ", re.IGNORECASE),
    ),
    (
        "torchtune",
        ("tokens_per_second_per_gpu", "peak_memory_active"),
        re.compile(r"tokens_per_second_per_gpu:|peak_memory_active:"),
    ),
    (
        "Hugging Face Trainer",
        ("'loss'", "'train_", "'grad_norm'"),
        re.compile(r"\{'(?:loss|train_runtime)':|'train_samples_per_second'|'grad_norm': "),
    ),
)
"""Whose log it is, letters that a line of it has, and its mark: the first that a line speaks for."""
