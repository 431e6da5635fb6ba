"""The catalogue's models: published sizes, names, sources."""

import csv
import datetime
import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from planner.catalogue import names
from planner.catalogue.models import model, model_names
from planner.errors import FileFormatError, SpecError

DATA = Path(__file__).parents[1] / "data"
with (DATA / "model_parameters.csv").open(newline="") as file:
    PUBLISHED = list(csv.DictReader(file))


@pytest.mark.parametrize("row", PUBLISHED, ids=lambda row: row["name"])
def test_a_model_has_the_published_number_of_parameters(row):
    published = float(row["parameters"])
    rounded = pytest.approx(published, rel=float(row["tolerance"]), abs=0)
    assert model(row["name"]).parameters == rounded


def test_every_model_has_a_published_size_to_compare_with():
    assert sorted(row["name"] for row in PUBLISHED) == model_names()
    assert len(PUBLISHED) >= 40


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("mixtral-8x7b", 12.9),
        ("mixtral-8x22b", 39.2),
        ("deepseek-v3", 37.6),
        ("deepseek-v2", 21.4),
        ("deepseek-moe-16b", 2.8),
        ("kimi-k2", 32.9),
        ("qwen3-235b-a22b", 22.2),
        ("qwen3-30b-a3b", 3.4),
        ("dbrx", 36.5),
        ("olmoe-1b-7b", 1.3),
        ("glm-4.5", 33.6),
        ("llama-3.1-8b", 8.0),
    ],
)
def test_active_parameters_are_as_published(name, billions):
    assert model(name).active_parameters / 1e9 == pytest.approx(billions, abs=0.06)


@pytest.mark.parametrize(
    ("spelling", "slug"),
    [
        ("LLAMA-3.1-8B", "llama-3.1-8b"),
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("llama3.1-70b", "llama-3.1-70b"),
        ("llama3:8b", "llama-3-8b"),
        ("Llama-2-70b-chat-hf", "llama-2-70b"),
        ("Qwen/Qwen2.5-7B-Instruct", "qwen2.5-7b"),
        ("deepseek-ai/DeepSeek-R1", "deepseek-v3"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"),
        ("google/gemma-2-9b-it", "gemma-2-9b"),
        ("gpt3", "gpt-3-175b"),
        ("microsoft/phi-4", "phi-4"),
    ],
)
def test_common_spellings_find_their_model(spelling, slug):
    assert model(spelling).name == slug


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(SpecError, match=r"unknown model 'lama-3\.1-8b'; did you mean llama-3\.1-8b"):
        model("lama-3.1-8b")


@pytest.mark.parametrize("name", ["", "   ", "a" * 5000, "a\0b"])
def test_a_name_that_is_none_is_refused(name):
    with pytest.raises(SpecError, match="unknown model"):
        model(name)


def test_a_path_to_a_file_or_folder_is_read(tmp_path):
    folder = tmp_path / "my-model"
    folder.mkdir()
    config = DATA / "configs" / "llama-3.2-1b.json"
    (folder / "config.json").write_text(config.read_text())
    assert model(str(folder)).name == "my-model"
    assert model(str(config)).parameters == model("llama-3.2-1b").parameters
    with pytest.raises(FileFormatError, match="there is no such file"):
        model("missing/config.json")


@pytest.mark.parametrize("slug", model_names())
def test_an_entry_states_its_source_or_is_provisional(slug):
    entry = tomllib.loads(names.path_of("models", slug).read_text(encoding="utf-8"))
    assert set(entry) <= {"aliases", "source", "read", "config"}
    assert entry["read"] <= datetime.date(2026, 11, 30)
    assert any(note.startswith("provisional") for note in model(slug).notes) == (not entry["source"])


def test_no_two_models_share_a_name():
    spelled = [names.normalised(name) for slug, aliases in names.names("models").items() for name in (slug, *aliases)]
    assert len(spelled) == len(set(spelled))


def test_catalogue_and_public_file_of_one_model_agree():
    ours = model("qwen3-235b-a22b")
    theirs = model(str(DATA / "configs" / "qwen3-235b-a22b.json"))
    assert (ours.layers, ours.parameters) == (theirs.layers, theirs.parameters)


def test_one_model_is_read_without_numpy_or_the_other_files():
    script = (
        "import builtins, json, sys; from planner.catalogue.models import model; opened = []; real = open\n"
        "import io, pathlib; read = pathlib.Path.read_text\n"
        "pathlib.Path.read_text = lambda self, *a, **k: (opened.append(self.name), read(self, *a, **k))[1]\n"
        "model('llama-3.1-70b'); print(json.dumps([opened, 'numpy' in sys.modules]))"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert json.loads(result.stdout) == [["llama-3.1-70b.toml"], False]


def test_roberta_has_two_positions_that_no_token_can_use():
    assert model("roberta-base").max_seq_len == 512
    assert model("bert-base").max_seq_len == 512
