"""Every notebook runs from top to bottom, on a CPU."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))


def speaking_cells(notebook):
    """Numbers of the code cells that print or draw something."""
    return [number for number, cell in enumerate(notebook.cells) if cell.cell_type == "code" and cell.outputs]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs_from_top_to_bottom_and_shows_something_where_its_saved_copy_does(path, tmp_path, monkeypatch):
    monkeypatch.delenv("MPLBACKEND", raising=False)
    notebook = nbformat.read(path, as_version=4)
    saved = speaking_cells(notebook)
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert speaking_cells(notebook) == saved


def test_there_is_a_notebook():
    assert NOTEBOOKS
