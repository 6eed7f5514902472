"""The notebooks run from top to bottom, and have small outputs of a whole run."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.conftest import ROOT

PATHS = sorted((ROOT / "examples").glob("*.ipynb"))
LARGEST = 100_000  # bytes of a notebook, its plots included
# In a process of its own: the warnings of the client are not ours. The path of the notebook, of the
# folder to run it in, and of the notebook to write.
EXECUTE = """
import sys
import nbformat
from nbclient import NotebookClient
notebook = nbformat.read(sys.argv[1], 4)
resources = {"metadata": {"path": sys.argv[2]}}
NotebookClient(notebook, timeout=600, kernel_name="python3", resources=resources).execute()
nbformat.write(notebook, sys.argv[3])
"""


def code_cells(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def kinds_of_outputs(path):
    """What each cell of code shows: text, plots or an error; notes on standard error aside."""
    return [
        {output["output_type"] for output in cell["outputs"] if output.get("name") != "stderr"}
        for cell in code_cells(path)
    ]


def test_there_are_three_notebooks():
    assert len(PATHS) == 3


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_notebook_has_the_small_outputs_of_one_whole_run(path):
    cells = code_cells(path)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert not any("error" in kinds for kinds in kinds_of_outputs(path))
    assert path.stat().st_size < LARGEST
    text = path.read_text(encoding="utf-8")
    for name in (str(ROOT), "/tmp/", "/home/"):
        assert name not in text, "the outputs name a folder of one machine"


@pytest.mark.slow
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_what_it_showed(path, tmp_path):
    for package in ("nbclient", "ipykernel"):
        pytest.importorskip(package)
    folder = tmp_path / "empty"
    folder.mkdir()
    result = tmp_path / "result.ipynb"
    done = subprocess.run(
        [sys.executable, "-c", EXECUTE, str(path), str(folder), str(result)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert kinds_of_outputs(result) == kinds_of_outputs(path)
