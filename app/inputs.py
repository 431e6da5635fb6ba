"""The question at the left: model, cluster and workload."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import streamlit as st

from app import ui, uploads
from app.fields import OWN, hardware, names
from app.state import value
from planner import Choices, PlannerError, choice_names, listing

OWN_PROFILE = "_own_profile"
"""Key of the session: the path of an own profile that is used."""
UPLOAD_ERROR = "_upload_error"


@dataclass(frozen=True)
class Inputs:
    """What is asked, as the controls have it; the key of everything that is kept."""

    model: str
    model_file: str
    hardware: str
    count: int
    cluster_file: str
    choices: Choices

    @cached_property
    def model_argument(self) -> str:
        """MODEL as planner takes it. Raises FileFormatError for a link whose file cannot be read."""
        return str(uploads.from_link(self.model_file)) if self.model == OWN else self.model

    @cached_property
    def cluster_argument(self) -> str:
        """CLUSTER as planner takes it. Raises FileFormatError for a link whose file cannot be read."""
        return str(uploads.from_link(self.cluster_file)) if self.hardware == OWN else f"{self.count}x{self.hardware}"

    def shown(self, command: str) -> str:
        """A command with the names that the user's own files have, in place of copies."""
        return ui.named(command)


def inputs() -> Inputs:
    """The question as the controls say it."""
    own_model, own_cluster = value("model") == OWN, value("hardware") == OWN
    chosen: dict[str, Any] = {name: value(name) or None for name in choice_names() if name in _NAMED}
    return Inputs(
        model=value("model"),
        model_file=value("model_file") if own_model else "",
        hardware=value("hardware"),
        count=1 if own_cluster else value("count"),
        cluster_file=value("cluster_file") if own_cluster else "",
        choices=Choices(
            network=value("network") or None,
            seq_len=value("seq_len"),
            global_batch_size=value("batch").strip() or None,
            lora_rank=value("lora_rank") if value("method") in ("lora", "qlora") else None,
            target=value("target") or None,
            stack=value("stack") or None,
            tokens=value("tokens").strip() or None,
            usd_per_gpu_hour=value("price"),
            fix=value("fix").strip() or None,
            profile=st.session_state.get(OWN_PROFILE),
            **chosen,
        ),
    )


_NAMED = ("precision", "state", "optimizer", "method", "attention", "offload", "objective")
_LABELS = {
    "method": "Train",
    "precision": "Precision",
    "state": "Weights and states",
    "optimizer": "Optimizer",
    "attention": "Attention kernel",
    "offload": "Offload to host",
    "objective": "Best at",
}
USUAL = {
    "method": "full",
    "precision": "by accelerator",
    "state": "mixed",
    "optimizer": "adamw",
    "attention": "flash",
    "offload": "none",
    "objective": "throughput",
}
"""What stands for no choice."""


def sidebar() -> Inputs:
    """Draw the controls; the question that they make."""
    with st.sidebar:
        _model()
        _cluster()
        _workload()
        with st.expander("More of the workload"):
            for name in ("precision", "state", "optimizer", "attention", "offload"):
                _named(name)
        with st.expander("Search and software"):
            _search()
        with st.expander("Whole run"):
            st.text_input("Tokens", key="tokens", placeholder="1T", help="Of the whole run: adds days and USD.")
            st.number_input("USD per GPU-hour", 0.0, 1e6, key="price", placeholder="catalogue's range", format="%.2f")
    return inputs()


def _model() -> None:
    own = [OWN] if value("model_file") or value("model") == OWN else []
    st.selectbox("Model", [*names("models"), *own], key="model")
    with st.expander("Own model (config.json)"):
        st.file_uploader(
            "config.json", ["json"], key="model_upload", on_change=_take, args=("model",), max_upload_size=1
        )
        st.text_area("or paste it", key="model_paste", height=120, placeholder='{"model_type": "llama", ...}')
        st.button("Use the pasted text", key="model_use", on_click=_take_pasted)
        _upload_error("model")


def _cluster() -> None:
    own = [OWN] if value("cluster_file") or value("hardware") == OWN else []
    st.selectbox("Nodes or GPUs", [*hardware(), *own], key="hardware", format_func=_hardware_words)
    is_node = value("hardware") in names("nodes")
    st.number_input(
        "Number of nodes" if is_node else "Number of GPUs", 1, 100_000, key="count", disabled=value("hardware") == OWN
    )
    st.selectbox("Network between nodes", ["", *names("networks")], key="network", format_func=_network_words)
    with st.expander("Own cluster (TOML or topology)"):
        st.file_uploader(
            "Cluster TOML, nvidia-smi topo -m, or NCCL's topology XML",
            ["toml", "txt", "log", "xml", "out"],
            key="cluster_upload",
            on_change=_take,
            args=("cluster",),
            max_upload_size=1,
        )
        st.selectbox(
            "GPU, where the file does not say", ["", *names("gpus")], key="dump_gpu", on_change=_take, args=("cluster",)
        )
        st.number_input("Such hosts", 1, 100_000, 1, key="dump_nodes", on_change=_take, args=("cluster",))
        _upload_error("cluster")


def _workload() -> None:
    st.number_input("Sequence length (tokens)", 1, 2**24, key="seq_len", placeholder="4096", step=1024)
    st.text_input("Global batch (sequences, or tokens as 4Mtok)", key="batch", placeholder="by cluster size")
    _named("method")
    if value("method") in ("lora", "qlora"):
        st.number_input("LoRA rank", 1, 2**16, key="lora_rank", placeholder="16")


def _search() -> None:
    choices = choice_names()
    _named("objective")
    targets = ["", *choices["trainer"], *choices["launcher"]]
    st.selectbox("Target", targets, key="target", format_func=_or("any"), help="Searches only what it can express.")
    stacks = ["", *(name for name in names("stacks") if name != "generic")]
    if value("stack") == "generic":
        st.session_state["stack"] = ""
    st.selectbox("Stack", stacks, key="stack", format_func=_or("generic, or the target's"))
    st.text_input("Fixed", key="fix", placeholder="tp=8,pp=1..4", help="Restricts the search, as --fix does.")


def _named(name: str) -> None:
    usual = USUAL[name]
    options = ["", *(each for each in choice_names()[name] if each != usual)]
    if value(name) == usual:
        st.session_state[name] = ""
    st.selectbox(_LABELS[name], options, key=name, format_func=_or(usual))


def _or(usual: str) -> Any:
    return lambda name: name or usual


def _network_words(name: str) -> str:
    return name or "as the nodes have"


@st.cache_data(show_spinner=False)
def _node_sizes() -> dict[str, str]:
    return {row["name"]: f"{row['gpus_per_node']} x {row['accelerator']}" for row in listing("nodes").as_dicts()}


def _hardware_words(name: str) -> str:
    sizes = _node_sizes()
    return f"{name} ({sizes[name]})" if name in sizes else name if name == OWN else f"{name} (GPUs)"


def _take(kind: str) -> None:
    """Take an uploaded file over, or say in one sentence why not."""
    found = st.session_state.get(f"{kind}_upload")
    if found is not None:
        _use(kind, found.getvalue(), found.name)


def _take_pasted() -> None:
    text = st.session_state["model_paste"]
    if text.strip():
        _use("model", text.encode(), "pasted.json")


def _use(kind: str, content: bytes, name: str) -> None:
    errors = st.session_state.setdefault(UPLOAD_ERROR, {})
    errors.pop(kind, None)
    try:
        if kind == "model":
            st.session_state["model_file"] = uploads.model_file(content, name)
            st.session_state["model"] = OWN
        else:
            gpu, nodes = st.session_state["dump_gpu"], st.session_state["dump_nodes"]
            st.session_state["cluster_file"] = uploads.cluster_file(content, name, gpu=gpu, nodes=nodes)
            st.session_state["hardware"] = OWN
    except PlannerError as error:
        errors[kind] = ui.words(error)


def _upload_error(kind: str) -> None:
    message = st.session_state.get(UPLOAD_ERROR, {}).get(kind)
    if message:
        st.error(ui.plain(message), icon=":material/error:")
