import json

import pytest

from planner.errors import FileFormatError
from planner.quantities import GIB
from planner.spec.durations_file import EXAMPLE, read_durations


@pytest.fixture
def table(tmp_path):
    """Reads a table written as JSON, or as text."""

    def read(content):
        path = tmp_path / "table.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return read_durations(path)

    return read


def test_a_table_says_what_each_stage_takes(table):
    own = table({"num_microbatches": 4, "p2p_s": 0.5, "stages": [{"F": 1, "B": 2}, {"F": 1, "I": 1, "W": 3}]})
    played = own.durations((0, 1))
    assert (own.schedule, played.num_microbatches, played.send, played.num_ranks) == ("1f1b", 4, 0.5, 2)
    (first,), (second,) = played.stages
    assert [part[0].compute for part in (first.forward, first.backward, first.weight)] == [1, 2, 0]
    assert [part[0].compute for part in (second.forward, second.backward, second.weight)] == [1, 1, 3]


def test_what_a_micro_batch_holds_is_in_gib(table):
    own = table({"num_microbatches": 1, "stages": [{"F": 1, "B": 2, "kept_gib": 0.5}]})
    assert own.durations((0,)).stages[0][0].kept == 0.5 * GIB


def test_the_example_that_errors_show_is_right(table):
    assert len(table(EXAMPLE).stages) == 2


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "is not JSON"),
        ("[1]", "should hold an object"),
        ({"num_microbatches": 4}, "stages should be a list"),
        ({"num_microbatches": 4, "stages": []}, "stages should be a list"),
        ({"stages": [{"F": 1, "B": 2}]}, "num_microbatches should be a whole number"),
        ({"num_microbatches": 2.5, "stages": [{"F": 1, "B": 2}]}, "num_microbatches should be a whole number"),
        ({"num_microbatches": True, "stages": [{"F": 1, "B": 2}]}, "num_microbatches should be a whole number"),
        ({"num_microbatches": 0, "stages": [{"F": 1, "B": 2}]}, "num_microbatches should be a whole number"),
        ({"num_microbatches": 4, "stages": [{"F": 1}]}, "stages[0]: needs F, and B or both I and W"),
        ({"num_microbatches": 4, "stages": [{"F": 1, "B": 2}, {"B": 1}]}, "stages[1]: needs F"),
        ({"num_microbatches": 4, "stages": [{"F": 1, "B": 2, "I": 1}]}, "needs F, and B or both"),
        ({"num_microbatches": 4, "stages": [{"F": 1, "I": 2}]}, "needs F, and B or both"),
        ({"num_microbatches": 4, "stages": [{"F": -1, "B": 2}]}, "F should be a number from 0"),
        ({"num_microbatches": 4, "stages": [{"F": "1", "B": 2}]}, "F should be a number from 0"),
        ({"num_microbatches": 4, "stages": [3]}, "stages[0]: should be an object"),
        ({"num_microbatches": 4, "stages": [{"F": 1, "B": 2}], "p2p": 1}, "has 'p2p'; there are: schedule"),
        ({"num_microbatches": 4, "stages": [{"F": 1, "B": 2}], "p2p_s": float("inf")}, "p2p_s should be a number"),
        ({"num_microbatches": 4, "stages": [{"F": 1, "B": 2}], "schedule": 1}, "schedule should be a name"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(table, content, said):
    with pytest.raises(FileFormatError) as raised:
        table(content)
    assert said in str(raised.value)
    assert "table.json" in str(raised.value)


def test_a_file_that_is_not_there_is_one_line(tmp_path):
    with pytest.raises(FileFormatError, match="cannot be read"):
        read_durations(tmp_path / "nothing.json")
