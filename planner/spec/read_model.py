"""Reads a model from the config.json that checkpoints carry (Hugging Face's format)."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from planner.errors import FileFormatError
from planner.spec.families.fields import shown
from planner.spec.families.joined import has_parts, joined_model
from planner.spec.families.single import single_model
from planner.spec.model import Model

LARGEST_FILE = 8 * 2**20
LARGEST_MODEL = 10**16


def read_model(path: str | Path, name: str = "") -> Model:
    """The model that a config.json describes; `path` is the file, or a folder that holds it.

    `name` defaults to the folder's name, or the file's without its ending. Raises FileFormatError for what is no
    readable description of a model, and SpecError for an architecture that is not modelled.
    """
    file = Path(path, "config.json") if os.path.isdir(path) else Path(path)
    where = " ".join(str(file).split())
    own_name = Path(os.path.abspath(file)).parent.name if file.name == "config.json" else file.stem
    return model_from_config(_parsed(file, where), name=name or own_name, where=where)


def model_from_config(config: Mapping[str, Any], *, name: str, where: str) -> Model:
    """The model that a parsed config.json describes; `where` names its origin in errors.

    Raises FileFormatError for wrong values, and SpecError for an architecture that is not modelled.

    >>> sizes = {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32}
    >>> config = {"model_type": "llama", "num_key_value_heads": 8, "vocab_size": 128256, **sizes}
    >>> model_from_config(config, name="llama-3.1-8b", where="example").parameters
    8030261248
    """
    if not isinstance(config, Mapping):
        raise FileFormatError(f"not a model's configuration: {shown(config)} where a table belongs", where=where)
    if "schema_version" in config and "plan" in config:
        raise FileFormatError(
            "a plan.json names its own cluster: planner explain or fits, and this file alone", where=where
        )
    model = (joined_model if has_parts(config) else single_model)(config, where=where)
    if model.parameters > LARGEST_MODEL:
        raise FileFormatError(f"its sizes come to {model.parameters:.1e} parameters; check them", where=where)
    return replace(model, name=name)


def _parsed(file: Path, where: str) -> Any:
    """The file's JSON, whatever it holds."""
    try:
        found = file.stat()
        if not stat.S_ISREG(found.st_mode):
            raise FileFormatError("not a regular file", where=where)
        if found.st_size > LARGEST_FILE:
            size = f"{found.st_size / 1e6:.0f} MB"
            raise FileFormatError(f"{size} is too large for a model's config.json (some kB)", where=where)
        return json.loads(file.read_bytes().decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise FileFormatError(f"not UTF-8 text (byte {error.start})", where=where) from None
    except RecursionError:
        raise FileFormatError("its tables are nested too deeply", where=where) from None
    except FileNotFoundError:
        in_folder = file.name == "config.json" and os.path.isdir(file.parent)
        missing = "the folder holds no config.json" if in_folder else "there is no such file"
        raise FileFormatError(missing, where=where) from None
    except OSError as error:
        raise FileFormatError(f"cannot be read: {error.strerror or error}", where=where) from None
    except ValueError as error:
        if isinstance(error, FileFormatError):
            raise
        raise FileFormatError(f"not JSON: {error}", where=where) from None
