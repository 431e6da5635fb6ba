"""What a layer does for one micro-batch, segment after segment: the order in time of what `stage_time` adds up."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from types import SimpleNamespace

from planner.cost.overlap import exposed_time
from planner.estimate.host import layer_launches, with_host
from planner.estimate.layer_communication import LayerCommunication
from planner.estimate.layer_time import LayerTime
from planner.estimate.setting import Setting
from planner.estimate.stage_time import input_regathers, key_gathers
from planner.quantities import Seconds
from planner.spec.durations import Segment
from planner.spec.plan import Plan, Recompute

Segments = tuple[Segment, ...]


@dataclass(frozen=True)
class LayerSegments:
    """Segments of forward, of backward to the gradients of the inputs, and of the gradients of the weights."""

    forward: Segments
    backward: Segments
    weight: Segments


def layer_segments(
    setting: Setting, plans: Plan, kind: int, compute: LayerTime, wire: LayerCommunication
) -> LayerSegments:
    """Segments of one kind of layer for plan columns of one row."""
    time, sent = _figures(compute, kind), _figures(wire, kind)
    beside, again = bool(plans[0].async_tp), plans[0].recompute == Recompute.FULL
    forward = (
        Segment("keys", transfer=sent.key_gather, axis="cp"),
        *_exchange(sent.ulysses / 2),
        Segment("attention", time.attention, sent.ring, "cp"),
        *_exchange(sent.ulysses / 2),
        *_products("matmul", time.matmul, sent.tp, beside=beside),
        Segment("elementwise", time.elementwise),
        Segment("experts", transfer=sent.ep, axis="ep"),
    )
    keys = float(key_gathers(plans, setting.stack)[0]) - 1
    regathers = float(input_regathers(plans, setting.stack)[0])
    backward = (
        *(_recomputed(time, sent, beside=beside) if again else (Segment("recompute", time.recompute),)),
        Segment("experts", transfer=sent.ep, axis="ep"),
        Segment("elementwise", time.elementwise_backward),
        *_products("matmul", time.input_gradient, sent.tp, beside=beside, regather=regathers * sent.regather),
        *_exchange(sent.ulysses / 2),
        Segment("attention", time.attention_backward, 2 * sent.ring, "cp"),
        *_exchange(sent.ulysses / 2),
        Segment("keys", transfer=keys * sent.key_gather + sent.key_scatter, axis="cp"),
    )
    weight = (Segment("weights", time.weight_gradient),)
    launches, launches_backward = (float(each[0]) for each in layer_launches(setting, plans))
    return LayerSegments(
        forward=_waiting_for_host(setting, forward, forward, launches),
        backward=_waiting_for_host(setting, backward, backward + weight, launches_backward),
        weight=weight,
    )


def _figures(record: LayerTime | LayerCommunication, kind: int) -> SimpleNamespace:
    """The figures of one kind of layer in the only row."""
    columns = {field.name: getattr(record, field.name) for field in fields(record)}
    return SimpleNamespace(**{name: float(column[kind, 0]) for name, column in columns.items() if column.ndim == 2})


def _exchange(seconds: Seconds) -> Segments:
    return (Segment("heads", transfer=seconds, axis="cp"),)


def _products(name: str, compute: Seconds, tp: Seconds, *, beside: bool, regather: Seconds = 0.0) -> Segments:
    """Matrix products, with what tensor parallelism gathers and scatters before or beside them."""
    if beside:
        return (Segment(name, compute, tp + regather, "tp"),)
    return Segment(name, transfer=tp, axis="tp"), Segment(name, compute, regather, "tp")


def _recomputed(time: SimpleNamespace, sent: SimpleNamespace, *, beside: bool) -> Segments:
    """A whole layer's forward again, with what it sends."""
    return (
        *_exchange(sent.ulysses),
        Segment("recompute", time.attention, sent.ring, "cp"),
        *_products("recompute", max(time.recompute - time.attention, 0.0), sent.tp, beside=beside),
        Segment("experts", transfer=sent.ep, axis="ep"),
    )


def _waiting_for_host(setting: Setting, segments: Segments, timed: Iterable[Segment], launches: Seconds) -> Segments:
    """Segments, and what the host takes longer to launch what is `timed` than the device to run it."""
    penalty = setting.profile.overlap_penalty
    device = sum(float(each.compute + exposed_time(each.compute, each.transfer, penalty=penalty)) for each in timed)
    return (*segments, Segment("host", float(with_host(setting, device, launches)) - device))
