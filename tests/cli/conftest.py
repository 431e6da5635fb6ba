import pytest
from click.testing import CliRunner

from planner.cli.main import main


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch):
    """Nothing of the window in which the tests run may show in the output."""
    for name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR", "PLANNER_DEBUG"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def planner(plain_environment):
    """Runs a command line: `planner("ls", "models")`; the result has exit_code, stdout and stderr."""

    def run(*arguments, **environment):
        return CliRunner().invoke(main, [str(each) for each in arguments], env=environment, prog_name="planner")

    return run
