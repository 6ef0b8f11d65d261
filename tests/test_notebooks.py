"""Every notebook of examples/ runs from top to bottom, in seconds and without the network, and is kept without outputs."""

import json
import socket
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "examples").glob("*.ipynb"))


def cells(path):
    return json.loads(path.read_text(encoding="utf-8"))["cells"]


def refused(*_, **__):
    raise AssertionError("an example asks for the network")


@pytest.mark.parametrize("path", [
    pytest.param(path, id=path.stem, marks=pytest.mark.slow if path.stem == "audit" else ()) for path in NOTEBOOKS
])  # fmt: skip
def test_a_notebook_runs_from_top_to_bottom(path, tmp_path, monkeypatch):
    """Cells are Python without magics, so they run here as they do in Jupyter: one after the other in one namespace."""
    sources = ["".join(cell["source"]) for cell in cells(path) if cell["cell_type"] == "code"]
    for package in ("sklearn", "transformers", "peft"):
        if any(package in source for source in sources) or package == "sklearn":
            pytest.importorskip(package, reason="the example needs it")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(socket.socket, "connect", refused)
    namespace = {"__name__": "__main__"}
    for number, source in enumerate(sources, start=1):
        exec(compile(source, f"{path.name}, cell {number}", "exec"), namespace)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_without_outputs(path):
    for cell in cells(path):
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None


def test_there_are_notebooks():
    assert len(NOTEBOOKS) >= 4
