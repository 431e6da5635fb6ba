"""Whatever controls are turned, in whatever order, nothing is raised: seeded sequences over all pages."""

import random

import pytest

pytest.importorskip("streamlit")

from app.fields import DIALS, PANELS, hardware, names
from app.inputs import USUAL
from planner import choice_names
from tests.app.running import at, opened

SMALL_MODELS = ("gpt2", "llama-3.2-1b", "llama-3.1-8b", "mixtral-8x7b", "bert-base")
PAGES = ("plan", "memory", "time", "network", "fits", "compare", "accuracy")
SEQUENCES, MORE = 8, 40
STEPS = 4


def values(dice):
    """A value for each control that a step may turn."""
    choices = choice_names()
    return {
        "model": dice.choice(SMALL_MODELS),
        "hardware": dice.choice(hardware()),
        "count": dice.choice((1, 2, 3, 4, 8, 64)),
        "network": dice.choice(("", *names("networks"))),
        "seq_len": dice.choice((None, 1, 127, 512, 8192, 2**20)),
        "batch": dice.choice(("", "1", "7", "1024", "1Mtok", "-3", "x")),
        **{
            name: dice.choice(("", *(each for each in choices[name] if each != usual))) for name, usual in USUAL.items()
        },
        "target": dice.choice(("", *choices["trainer"])),
        "stack": dice.choice(("", *(name for name in names("stacks") if name != "generic"))),
        "fix": dice.choice(("", "tp=2", "pp=4", "tp=3", "zero=3", "nonsense", "mbs=1..4,ac=full")),
        "tokens": dice.choice(("", "1T", "0", "1e30")),
        "plan": dice.randint(1, 10),
        "dial_tp": dice.choice(("as the plan", *DIALS["tp"])),
        "dial_sharding": dice.choice(("as the plan", *DIALS["sharding"])),
        "panel": dice.choice([name for name in PANELS if name != "map"]),
        "schedule": dice.choice(("", *choices["schedule"])),
        "mode": dice.choice(("sides", "what_if")),
        "accuracy_panel": dice.choice(("profile", "claims")),
    }


@pytest.mark.parametrize("seed", range(SEQUENCES))
def test_a_random_sequence_of_controls_raises_nothing(seed):
    walk(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEQUENCES, SEQUENCES + MORE))
def test_more_random_sequences_raise_nothing(seed):
    walk(seed)


def walk(seed):
    """Open a page, then turn three controls and go to another page, some times."""
    dice = random.Random(seed)
    app = opened(dice.choice(PAGES), model="gpt2", count=1)
    for _ in range(STEPS):
        for name, value in dice.sample(sorted(values(dice).items(), key=str), 3):
            app.session_state[name] = value
        at(app, dice.choice(PAGES))
        assert [each.value for each in app.exception] == []
        assert [each.value for each in app.error if "Internal error" in each.value] == []
