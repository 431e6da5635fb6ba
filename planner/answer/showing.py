"""What the planner read of one thing: a model, an accelerator, a node type, a network, a stack."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import fields
from typing import Any

from planner.catalogue import hardware
from planner.catalogue.models import model, model_names
from planner.catalogue.names import normalised
from planner.catalogue.stacks import IN_GIB, stack, stack_names
from planner.errors import SpecError, unknown_name
from planner.quantities import GB, GIB, format_bandwidth, format_bytes
from planner.spec.accelerator import Accelerator
from planner.spec.cluster import Fabric, Node
from planner.spec.codec import to_plain
from planner.spec.model import Layer, Model
from planner.spec.stack import Stack

Shown = Model | Accelerator | Node | Fabric | Stack


def thing(text: str) -> Shown:
    """What a name, a config.json or a folder means.

    Raises SpecError for an unknown name (with the nearest of every kind), FileFormatError for an unreadable file.
    """
    if text.endswith(".json") or os.path.exists(text):
        return model(text)
    for kind in (model, hardware.accelerator, hardware.node, hardware.network, stack):
        with suppress(SpecError):
            return kind(text)
    raise unknown_name("name", text, _known_names())


def _known_names() -> set[str]:
    by_alias = (hardware.accelerator_names(), hardware.node_names(), hardware.network_names(), stack_names())
    names = {normalised(each) for known in by_alias for name, aliases in known.items() for each in (name, *aliases)}
    return names | set(model_names())


def as_dict(shown: Shown) -> dict[str, Any]:
    """For JSON: of a model its counts and layers, of anything else every figure in base units with its source."""
    if isinstance(shown, Model):
        return {"schema_version": 1, "kind": "model", **_model_dict(shown)}
    return {"schema_version": 1, "kind": type(shown).__name__.lower(), **to_plain(shown)}


def _model_dict(shown: Model) -> dict[str, Any]:
    plain = {field.name: to_plain(getattr(shown, field.name)) for field in fields(shown) if field.name != "layers"}
    return {
        **plain,
        "parameters": shown.parameters,
        "active_parameters": shown.active_parameters,
        "layers": shown.num_hidden_layers,
        "layer_kinds": [{"count": count, **to_plain(layer)} for layer, count in shown.layer_kinds],
    }


def lines(shown: Shown) -> list[tuple[str, str, str]]:
    """For people: what, its value with unit, where it comes from."""
    if isinstance(shown, Model):
        return _model_lines(shown)
    if isinstance(shown, Accelerator):
        return _accelerator_lines(shown)
    if isinstance(shown, Node):
        return _node_lines(shown)
    if isinstance(shown, Fabric):
        return _fabric_lines(shown)
    return _stack_lines(shown)


def _model_lines(shown: Model) -> list[tuple[str, str, str]]:
    found = [
        ("name", shown.name, ""),
        ("parameters", f"{shown.parameters:,}", ""),
        ("active parameters", f"{shown.active_parameters:,}", "" if shown.has_experts else "all: no experts"),
        ("layers", str(shown.num_hidden_layers), ""),
        ("hidden size", f"{shown.hidden_size:,}", ""),
        ("vocabulary", f"{shown.vocab_size:,}", "embedding and head tied" if shown.tie_word_embeddings else ""),
        ("longest sequence", f"{shown.max_seq_len:,}" if shown.max_seq_len else "unknown", ""),
    ]
    found += [(f"{count} layers", _layer_words(layer), "") for layer, count in shown.layer_kinds]
    return (
        found + [("not modelled", part, "") for part in shown.left_out] + [("note", text, "") for text in shown.notes]
    )


def _layer_words(layer: Layer) -> str:
    attention = layer.attention
    kind = "latent attention" if attention.latent else "attention"
    window = f", window {attention.sliding_window:,}" if attention.sliding_window else ""
    words = [
        f"{kind} of {attention.num_attention_heads} heads x {attention.head_dim} on {attention.num_key_value_heads} "
        f"key-value heads{window}"
    ]
    if layer.mlp:
        name = "shared experts" if layer.experts else "block"
        words.append(f"{'gated' if layer.mlp.gated else 'plain'} {name} of {layer.mlp.intermediate_size:,}")
    if layer.experts:
        experts = layer.experts
        words.append(
            f"{experts.experts_per_token} of {experts.num_experts} experts of {experts.expert.intermediate_size:,}"
        )
    if layer.cross_attention:
        words.append("attention to the encoder")
    return "; ".join(words)


def _accelerator_lines(shown: Accelerator) -> list[tuple[str, str, str]]:
    found = [
        ("name", shown.name, ", ".join(shown.aliases)),
        ("memory", format_bytes(float(shown.memory)), _source(shown, "memory")),
        ("usable memory", format_bytes(float(shown.usable_memory)), _source(shown, "usable_memory")),
        ("memory bandwidth", format_bandwidth(float(shown.memory_bandwidth)), _source(shown, "memory_bandwidth")),
    ]
    found += [
        (f"peak {name}", f"{float(rate) / 1e12:,.1f} TFLOP/s dense", _source(shown, f"peak.{name}"))
        for name, rate in shown.peak.items()
    ]
    found.append(("multiprocessors", str(shown.multiprocessors), _source(shown, "multiprocessors")))
    found.append(("PCIe", format_bandwidth(float(shown.pcie_bandwidth)), _source(shown, "pcie_bandwidth")))
    if shown.usd_per_hour:
        low, high = shown.usd_per_hour
        found.append(
            ("price", f"{low:g} to {high:g} USD per hour ({shown.price_date})", _source(shown, "usd_per_hour"))
        )
    return found + ([("notes", shown.notes, "")] if shown.notes else [])


def _node_lines(shown: Node) -> list[tuple[str, str, str]]:
    found = [
        ("name", shown.name, ", ".join(shown.aliases)),
        ("accelerators", f"{shown.gpus_per_node} x {shown.accelerator.name}", _source(shown, "layout")),
        ("wiring", f"{shown.wiring.name.lower()} of {shown.link}", ""),
        ("link per GPU, one way", format_bandwidth(float(shown.link_bandwidth)), _source(shown, "link_bandwidth")),
    ]
    if shown.domain_nodes > 1:
        found.append(("link domain", f"{shown.domain_nodes} nodes", ""))
    if shown.host_memory:
        found.append(("host memory", f"{float(shown.host_memory) / GIB:,.0f} GiB", _source(shown, "host_memory")))
    found += [(f"network {what}", value, source) for what, value, source in _fabric_lines(shown.fabric)]
    return found + ([("notes", shown.notes, "")] if shown.notes else [])


def _fabric_lines(shown: Fabric) -> list[tuple[str, str, str]]:
    nics = str(shown.nics_per_node) if shown.nics_per_node else "as many as the node has"
    return [
        ("name", f"{shown.name} ({shown.kind})", ""),
        ("NICs per node", nics, _source(shown, "nics_per_node")),
        ("one NIC, one way", f"{float(shown.nic_bandwidth) / GB:g} GB/s", _source(shown, "nic_bandwidth")),
        ("latency", f"{float(shown.latency) * 1e6:.3g} us", _source(shown, "latency")),
        ("oversubscription", f"{shown.oversubscription:g}", ""),
        *([("nodes per pod", f"{shown.nodes_per_pod:,}", "")] if shown.nodes_per_pod else []),
        *([("pod oversubscription", f"{shown.pod_oversubscription:g}", "")] if shown.nodes_per_pod else []),
    ]


def _stack_lines(shown: Stack) -> list[tuple[str, str, str]]:
    """Every convention, named as in `Stack`; what is counted in bytes with that unit."""
    return [
        (field.name.removesuffix("_bytes").replace("_", " "), _convention(field.name, getattr(shown, field.name)), "")
        for field in fields(shown)
    ]


def _convention(name: str, value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, float):
        return str(value)
    if name in IN_GIB:
        return format_bytes(value)
    return f"{value:g} bytes" if name.endswith("_bytes") else f"{value:,.6g}"


def _source(shown: Accelerator | Node | Fabric, field: str) -> str:
    """Where a figure comes from; provisional where nobody said."""
    source = shown.sources.get(field)
    if source is None:
        return ""
    if source.provisional:
        return f"provisional ({source.scope})" if source.scope else "provisional"
    return f"{source.source} (read {source.read})" if source.read else source.source
