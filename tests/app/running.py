"""The app without a browser, and the command line beside it."""

import json
import shlex
from pathlib import Path

from click.testing import CliRunner
from streamlit.testing.v1 import AppTest
from streamlit.util import calc_hash

from planner.cli.main import main

MAIN = Path(__file__).parents[2] / "app" / "main.py"


def opened(page="", **link):
    """The app on a page, as a link opens it."""
    app = AppTest.from_file(str(MAIN), default_timeout=180)
    for name, value in link.items():
        app.query_params[name] = str(value)
    return at(app, page)


def at(app, page=""):
    """The same session on a page. (AppTest.switch_page knows pages that are files only.)"""
    if page:
        app._page_hash = calc_hash(page)
    return app.run()


def cli(command, *more):
    """What a command line prints as JSON."""
    result = CliRunner().invoke(main, [*shlex.split(command)[1:], *more, "--json"], prog_name="planner")
    assert result.stdout, result.stderr
    return json.loads(result.stdout)


def commands(app):
    """The command lines that a page shows."""
    return [block.value for block in app.code if block.value.startswith("planner ")]


def metric(app, name):
    return next(each.value for each in app.metric if each.label == name)


def problems(app):
    """Everything that says that something went wrong."""
    return [each.value for each in (*app.exception, *app.error)]
