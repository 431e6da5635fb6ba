"""What people bring: checked, limited, kept in a temporary folder only, and short enough for a link where it can be."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import tomllib
import zlib
from pathlib import Path
from tempfile import TemporaryDirectory

import streamlit as st

from planner import FileFormatError, cluster, cluster_toml, host_report, model

LARGEST = 4 * 2**20
"""Bytes of a file."""
SPEC_LARGEST = 256 * 2**10
"""Bytes of a config.json or a cluster file."""


@st.cache_resource(show_spinner=False)
def _folder() -> TemporaryDirectory[str]:
    """One for the process, gone when it ends."""
    return TemporaryDirectory(prefix="planner-app-")


def stored(content: bytes, name: str) -> Path:
    """The content as a file of that name, for functions that read files. Raises FileFormatError if it is too large."""
    if len(content) > LARGEST:
        raise FileFormatError(
            f"{len(content) / 1e6:.1f} MB; at most {LARGEST / 1e6:.1f} MB are read", where=plain(name)
        )
    folder = Path(_folder().name, hashlib.sha256(content).hexdigest()[:16])
    folder.mkdir(exist_ok=True)
    path = folder / plain(name)
    if not path.exists():
        path.write_bytes(content)
    return path


def plain(name: str) -> str:
    """A file's name without anything that could lead elsewhere.

    >>> plain("../../etc/pass wd.json"), plain("")
    ('pass-wd.json', 'file')
    """
    return re.sub(r"[^A-Za-z0-9._-]+", "-", re.split(r"[/\\]", name)[-1]).lstrip(".-")[:60] or "file"


def packed(name: str, content: str) -> str:
    """A text file as a value of a link."""
    return base64.urlsafe_b64encode(zlib.compress(json.dumps([plain(name), content]).encode(), 9)).decode()


def unpacked(text: str) -> tuple[str, str]:
    """Name and content. Raises FileFormatError for what `packed` did not make, or what is too large."""
    try:
        pieces = zlib.decompressobj()
        found = json.loads(pieces.decompress(base64.urlsafe_b64decode(text), SPEC_LARGEST))
        name, content = found
        return plain(str(name)), str(content)
    except (ValueError, zlib.error, TypeError):
        raise FileFormatError("the link holds a file that cannot be read", where="link") from None


def model_file(content: bytes, name: str) -> str:
    """A config.json, checked, as a value of a link. Raises SpecError or FileFormatError."""
    text = _text(content, name)
    model(str(stored(text.encode(), _json_name(name))))
    compact = json.dumps(json.loads(text), separators=(",", ":"))
    return packed(_json_name(name), compact)


def cluster_file(content: bytes, name: str, *, gpu: str = "", nodes: int = 1) -> str:
    """A cluster TOML, or what a machine printed of its topology, as a value of a link. Raises SpecError."""
    text = _text(content, name)
    if not _is_toml(text):
        report = host_report(stored(text.encode(), plain(name)), gpu=gpu or None, nodes=nodes)
        if report.host is None:
            raise FileFormatError(report.lacking, where=plain(name))
        text = cluster_toml(report.host, nodes=nodes)
    toml = f"{Path(plain(name)).stem}.toml"
    cluster(str(stored(text.encode(), toml)))
    return packed(toml, text)


def from_link(text: str) -> Path:
    """The file that a link holds. Raises FileFormatError."""
    name, content = unpacked(text)
    return stored(content.encode(), name)


def _json_name(name: str) -> str:
    return f"{Path(plain(name)).stem}.json"


def _is_toml(text: str) -> bool:
    try:
        return bool({"nodes", "pools"} & tomllib.loads(text).keys())
    except (tomllib.TOMLDecodeError, RecursionError):
        return False


def _text(content: bytes, name: str) -> str:
    if len(content) > SPEC_LARGEST:
        size = f"{len(content) / 1024:,.0f} KiB"
        raise FileFormatError(f"{size}; at most {SPEC_LARGEST // 1024} KiB are read", where=plain(name))
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FileFormatError(f"not UTF-8 text (byte {error.start})", where=plain(name)) from None
