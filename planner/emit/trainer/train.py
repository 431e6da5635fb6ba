"""The run: from a plan.json to trained steps. Read from `main` down."""

from __future__ import annotations

import os
import signal
import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from types import FrameType

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.pipelining import PipelineStage
from torch.distributed.tensor.parallel import loss_parallel
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.parallel import DistributedDataParallel

from . import arguments as command_line
from .checkpoint import Checkpoints
from .data import FileTokens, SyntheticTokens, Tokens, batch
from .experts import scale_expert_gradients
from .initialise import initialise
from .lora import add_adapters
from .mesh import Meshes
from .model import Decoder, cross_entropy, plain
from .optimizer import LossScale, build_optimizer, gradient_norm, learning_rate, scale_gradients
from .parallelize import COMPUTE_DTYPES, parallelize, replicated
from .pipeline import Schedule, pipeline_schedule, run_step, share_tied_gradients, stage_layers, stage_numbers
from .record import Recorder
from .settings import Agreed, Refusal, Settings, read_settings, with_schedule, with_world_size
from .shrink import shrunk


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a plan; leaves with exit code 2 and one line where it cannot."""
    options = command_line.parse(arguments)
    try:
        device = _device(options)
        settings = _settings(options, device)
        with _processes(device, settings):
            Run(settings, options, device).steps()
    except Agreed as refusal:
        if int(os.environ.get("RANK", "0")) == 0:
            print(f"trainer: {refusal}", file=sys.stderr)
        sys.exit(2)
    except Refusal as refusal:
        print(f"trainer: rank {os.environ.get('RANK', '0')}: {refusal}", file=sys.stderr)
        sys.exit(2)


class Run:
    """A model in its parts (one, or one for each pipeline stage of this rank), its optimizers and its data."""

    def __init__(self, settings: Settings, options: Namespace, device: torch.device) -> None:
        self.settings, self.options, self.device, self.plan = settings, options, device, settings.plan
        self.meshes = Meshes.of(self.plan, device.type) if self.plan.world_size > 1 else None
        self.stages: list[PipelineStage] = []
        self.scale = LossScale(settings.precision)
        self.parts: list[Decoder] = [self._part(number) for number in stage_numbers(self.plan, self._index("pp"))]
        self.positions = self.parts[0].positions
        for part in self.parts:
            part.positions = part.positions.to(device)
        self.model: nn.Module = self.parts[0]
        if self.plan.plain_ddp and self.plan.world_size > 1:
            self.model = replicated(self.parts[0], bucket_mb=options.bucket_mb)
        self.schedule = self._schedule() if self.plan.pp > 1 else None
        self.optimizers = [
            build_optimizer(part, settings, lr=options.lr, weight_decay=options.weight_decay) for part in self.parts
        ]
        self.tokens = self._tokens()
        if device.type == "cuda":  # what drawing the first values took is not the run's
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(device)
        silent = dist.is_initialized() and dist.get_rank() != 0
        self.record = Recorder(options.record, warmup=options.timing_warmup, silent=silent)
        self.stopping = False

    def steps(self) -> None:
        """All steps, from the newest checkpoint on; SIGTERM ends the run after a step, with a checkpoint."""
        saver = self._checkpoints()
        first = saver.resume() if saver else 0
        words = self.meshes.described() if self.meshes else "one process"
        self.record.start(self.settings, mesh=words, device=self.device, world_size=self.plan.world_size)
        for text in self.settings.notes:
            self.record.note(text)
        for ending in (signal.SIGTERM, signal.SIGINT):
            signal.signal(ending, self._stop)
        for number in range(first, self.options.steps):
            stop = self._timed_step(number)
            last = stop or number + 1 == self.options.steps
            if saver and (last or (number + 1) % self.options.save_every == 0):
                saver.save(number + 1)
            if stop:
                break
        self.record.summary(self.settings, self.plan.global_batch_size * self.settings.seq_len)

    def _timed_step(self, number: int) -> bool:
        """One step, timed and recorded; whether any process was asked to stop."""
        rate = learning_rate(
            number,
            base=self.options.lr,
            warmup=self.options.lr_warmup,
            rule=self.options.lr_rule,
            batch_ratio=self.plan.global_batch_size / (self.options.lr_batch or self.plan.global_batch_size),
        )
        tokens, targets = self._batch(number)
        start = self._now()
        loss = self._forward_backward(tokens, targets)
        norm = self._update(rate)
        mean_loss, stop = self._everyones(loss)
        seconds = self._now() - start
        amount = self.plan.global_batch_size * self.settings.seq_len
        self.record.step(number, seconds, amount, loss=mean_loss, gradient_norm=norm, learning_rate=rate)
        return stop

    def _forward_backward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Gradients of the whole batch; the mean loss of this rank's part of it (0 where another stage has it)."""
        with _contexts(self.settings, self.device):
            if self.schedule is not None:
                loss = run_step(self.schedule, self.stages, tokens, targets)
                if self.settings.model.tie_word_embeddings:
                    share_tied_gradients(self.parts, self._group("pp"))
                return loss / self.scale.value
            return self._accumulate(tokens, targets)

    def _accumulate(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Micro-batch after micro-batch, gradients synchronised as the plan says."""
        count = self.plan.num_microbatches
        total = torch.zeros((), device=self.device)
        for i, (part, wanted) in enumerate(zip(tokens.chunk(count), targets.chunk(count), strict=True)):
            with self._synchronised(last=i + 1 == count):
                loss = cross_entropy(self.model(part), wanted) / count
                (loss * self.scale.value).backward()
            total += plain(loss)
        return total

    def _synchronised(self, *, last: bool) -> AbstractContextManager[object]:
        """Whether this micro-batch reduces gradients among data-parallel ranks."""
        once = {"usual": not self.plan.shards, "once": True, "every": False}[self.plan.gradient_sync]
        if isinstance(self.model, DistributedDataParallel):
            return self.model.no_sync() if once and not last else nullcontext()
        if isinstance(self.model, FSDPModule):
            self.model.set_requires_gradient_sync(last or not once)
            self.model.set_is_last_backward(last or not once)
        return nullcontext()

    def _update(self, rate: float) -> float:
        """Clip, step and forget the gradients; their norm. A step whose gradients overflowed in fp16 is left out."""
        for part in self.parts:
            scale_expert_gradients(part)
        tied = self.settings.model.tie_word_embeddings
        norm = gradient_norm(self.parts, pp=self.plan.pp, tied=tied) / self.scale.value
        overflow = norm == float("inf")
        if overflow and not self.scale.dynamic:
            raise Agreed("gradients are no longer finite: nothing was changed or saved by this step")
        if not overflow:
            clip = self.options.clip
            scale_gradients(self.parts, min(1.0, clip / (norm + 1e-6) if clip else 1.0) / self.scale.value)
            for optimizer in self.optimizers:
                for group in optimizer.param_groups:
                    group["lr"] = rate
                optimizer.step()
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        self.scale.update(overflow=overflow)
        return norm

    def _everyones(self, loss: Tensor) -> tuple[float, bool]:
        """The mean loss over all ranks that have one, and whether any process was asked to stop."""
        both = torch.stack([loss.float(), torch.tensor(float(self.stopping), device=self.device)])
        if dist.is_initialized():
            dist.all_reduce(both)
        having = self.plan.dp * self.plan.cp * self.plan.tp
        return float(both[0]) / having, bool(both[1] > 0)

    def _part(self, number: int) -> Decoder:
        """The model, or one pipeline stage of it, cut as the plan says, with memory and first values."""
        settings, plan = self.settings, self.plan
        with torch.device("meta"):
            part = Decoder(settings.model)
            layers = stage_layers(len(settings.model.layers), plan)
            part.keep(layers[number], first=number == 0, last=number == len(layers) - 1)
            if settings.method == "lora":
                add_adapters(part, settings.lora_rank, frozen_dtype=COMPUTE_DTYPES[settings.precision])
        parallelize(part, settings, self.meshes)
        resting = torch.device("cpu") if plan.offload == "all" else self.device
        dtype = COMPUTE_DTYPES[settings.precision] if settings.state == "16bit" else None
        initialise(part, resting, seed=self.options.seed, tied=settings.model.tie_word_embeddings, dtype=dtype)
        if plan.pp > 1:
            self.stages.append(PipelineStage(part, number, len(layers), self.device, group=self._group("pp")))
        return part

    def _schedule(self) -> Schedule:
        return pipeline_schedule(self.stages, self.plan, lambda *pair: cross_entropy(*pair) * self.scale.value)

    def _batch(self, number: int) -> tuple[Tensor, Tensor]:
        """This rank's sequences of a step, at the positions of its tokens."""
        count = self.plan.global_batch_size // self.plan.dp
        first = number * self.plan.global_batch_size + self._index("dp") * count
        pair = batch(self.tokens, first=first, count=count, positions=self.positions)
        return pair[0].to(self.device), pair[1].to(self.device)

    def _tokens(self) -> Tokens:
        options, vocabulary = self.options, self.settings.model.vocab_size
        if options.data is None:
            return SyntheticTokens(vocabulary, self.settings.seq_len, options.seed)
        return FileTokens(options.data, self.settings.seq_len, token_type=options.data_type, vocab_size=vocabulary)

    def _checkpoints(self) -> Checkpoints | None:
        folder = self.options.checkpoint
        return Checkpoints(folder, self.parts, self.optimizers, keep=self.options.keep) if folder else None

    def _index(self, axis: str) -> int:
        return self.meshes.index(axis) if self.meshes else 0

    def _group(self, axis: str) -> dist.ProcessGroup:
        assert self.meshes is not None
        return self.meshes.group(axis)

    def _now(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()

    def _stop(self, _signal: int, _frame: FrameType | None) -> None:
        self.stopping = True


def _device(options: Namespace) -> torch.device:
    cuda = torch.cuda.is_available()
    if options.device == "cuda" and not cuda:
        raise Agreed("--device cuda: torch finds no GPU here; --device cpu --shrink tries the launch without one")
    if options.device == "cpu" or not cuda:
        return torch.device("cpu")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))


def _settings(options: Namespace, device: torch.device) -> Settings:
    """The plan's settings, with what the command line changes."""
    settings = read_settings(options.plan)
    plan = settings.plan
    compiled = plan.compiled and device.type == "cuda" if options.compile is None else options.compile
    plan = with_schedule(replace(plan, compiled=compiled), options.schedule)
    settings = replace(settings, plan=plan, precision=options.precision or settings.precision)
    settings = shrunk(settings) if options.shrink else settings
    return with_world_size(settings, int(os.environ.get("WORLD_SIZE", "1")), elastic=options.elastic)


@contextmanager
def _processes(device: torch.device, settings: Settings) -> Iterator[None]:
    """The process group, for as long as the run lasts."""
    if settings.precision == "tf32":
        torch.set_float32_matmul_precision("high")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if settings.plan.world_size > 1:
        nccl = "cpu:gloo,cuda:nccl" if settings.plan.offload == "all" else "nccl"
        dist.init_process_group(nccl if device.type == "cuda" else "gloo")
    try:
        yield
        if dist.is_initialized():
            dist.barrier()  # nobody closes a connection that another still reads from
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


@contextmanager
def _contexts(settings: Settings, device: torch.device) -> Iterator[None]:
    """What surrounds forward and backward: a vocabulary-parallel loss, autocast of plain replicas, a kernel choice."""
    dtype = COMPUTE_DTYPES[settings.precision]
    plan = settings.plan
    unsharded = plan.plain_ddp or plan.world_size == 1
    with ExitStack() as stack:
        if plan.tp > 1:
            stack.enter_context(loss_parallel())
        if settings.attention == "math":
            stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        if unsharded and settings.state == "mixed" and dtype != torch.float32:
            stack.enter_context(torch.autocast(device.type, dtype))
        yield
