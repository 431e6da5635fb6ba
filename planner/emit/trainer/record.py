"""What a run says: a line a step for people, JSON lines for programs, and at the end what was predicted beside it."""

from __future__ import annotations

import json
import platform
import resource
import statistics
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

import torch
import torch.distributed as dist

from .settings import Settings

GIB = 2**30


class Recorder:
    """Writes on rank 0 alone. The first `warmup` steps count for nothing in the summary."""

    def __init__(self, path: Path | None, *, warmup: int, silent: bool) -> None:
        self.file: TextIO | None = None if silent or path is None else path.open("a", encoding="utf-8")
        self.warmup, self.silent = warmup, silent
        self.times: list[float] = []

    def start(self, settings: Settings, *, mesh: str, device: torch.device, world_size: int) -> None:
        """What is about to run, and on what."""
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or "cpu"
        self._say(
            f"{settings.model.name} on {world_size} x {name}: {mesh}, {settings.plan.global_batch_size} sequences"
        )
        self._write(
            "start",
            mesh=mesh,
            device=name,
            world_size=world_size,
            torch=torch.__version__,
            settings=asdict(settings),
        )

    def step(self, number: int, seconds: float, tokens: int, **values: float) -> None:
        """One optimizer step, counted from 0."""
        self.times.append(seconds)
        rate = tokens / seconds
        self._say(f"step {number}: loss {values['loss']:.5f}, {seconds:.3f} s, {rate:,.0f} tokens/s")
        self._write("step", step=number, step_time_s=seconds, tokens_per_s=rate, **values, **_peaks_gib())

    def summary(self, settings: Settings, tokens: int) -> None:
        """The median step after warm-up and the fullest rank's memory, beside the prediction. Every rank calls this."""
        peaks = _largest(_peaks_gib())
        timed = self.times[self.warmup :] or self.times[-1:]
        if not timed:
            self.note("nothing was left to do: all steps were done before")
            return
        median = statistics.median(timed)
        predicted = {key: settings.prediction[key] for key in PREDICTED if key in settings.prediction}
        self._say(f"step time {median:.4g} s (median of {len(timed)}){_beside(predicted, 'step_time_s', 's')}")
        self._say(f"peak memory {peaks[MEASURED_PEAK]:.4g} GiB{_beside(predicted, 'peak_memory_gib', 'GiB')}")
        self._write(
            "summary", steps=len(timed), step_time_s=median, tokens_per_s=tokens / median, **peaks, predicted=predicted
        )

    def note(self, text: str) -> None:
        """Something worth knowing."""
        self._say(f"note: {text}")
        self._write("note", text=text)

    def _say(self, text: str) -> None:
        if not self.silent:
            print(text, flush=True)

    def _write(self, event: str, **values: Any) -> None:
        if self.file is not None:
            self.file.write(json.dumps({"event": event, **values}) + "\n")
            self.file.flush()


MEASURED_PEAK = "peak_reserved_gib"
PREDICTED = ("step_time_s", "step_time_interval_s", "tokens_per_s", "peak_memory_gib", "memory_verdict", "level")


def _peaks_gib() -> dict[str, float]:
    """Peak memory of this process: of the allocator on a GPU, of the whole process on a CPU."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        return {
            "peak_allocated_gib": torch.cuda.max_memory_allocated() / GIB,
            MEASURED_PEAK: torch.cuda.max_memory_reserved() / GIB,
        }
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GIB
    return {"peak_allocated_gib": resident, MEASURED_PEAK: resident}


def _largest(peaks: dict[str, float]) -> dict[str, float]:
    """The same of the rank with the most."""
    if not dist.is_initialized():
        return peaks
    device = "cuda" if torch.cuda.is_initialized() else "cpu"
    values = torch.tensor(list(peaks.values()), device=device)
    dist.all_reduce(values, op=dist.ReduceOp.MAX)
    return dict(zip(peaks, values.tolist(), strict=True))


def _beside(predicted: dict[str, Any], key: str, unit: str) -> str:
    return f"; predicted {predicted[key]:.4g} {unit}" if key in predicted else ""
