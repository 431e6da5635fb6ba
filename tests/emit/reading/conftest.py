import pytest

from planner.emit.reading.recognise import read_settings


@pytest.fixture
def read(tmp_path):
    """The settings of a text in a file of some name, other files beside it."""

    def settings(text, name="run.sh", **beside):
        (tmp_path / name).write_text(text)
        for other, content in beside.items():
            (tmp_path / other.replace("__", ".")).write_text(content)
        return read_settings(tmp_path / name)

    return settings
