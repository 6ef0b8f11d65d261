"""The page of results says "whole" of exactly the experiments whose runs are all there; tables and figures are of those runs."""

import re
from pathlib import Path

import matplotlib
import numpy as np
import pytest

from privet.recipes import RECIPES, Records, finished
from privet.recipes.charts import draw
from privet.recipes.table import summary, write

RESULTS = Path(__file__).parents[2] / "docs" / "results"
PAGE = (RESULTS / "README.md").read_text(encoding="utf-8")
ROWS = [
    (re.findall(r"`([a-z0-9-]+)`", cells[1]), cells[2].strip())
    for cells in (line.strip("|").split("|") for line in PAGE.splitlines() if line.startswith("| "))
    if "`" in cells[1]
]
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?")


def runs(name):
    return finished(RECIPES[name], Records(RESULTS / name / "runs.jsonl"))


WHOLE = [name for name in RECIPES if len(runs(name)) == RECIPES[name].runs]


def test_every_recipe_of_a_paper_has_a_row():
    named = {name for names, _ in ROWS for name in names}
    assert named == {name for name in RECIPES if not name.endswith("-parts")}


def test_whole_are_those_with_all_runs():
    for names, state in ROWS:
        assert state.startswith("whole") == set(names).issubset(WHOLE), f"{names}: {state}"


@pytest.mark.parametrize("name", WHOLE)
def test_the_table_is_that_of_the_runs(name, tmp_path):
    recipe, records = RECIPES[name], runs(name)
    write(recipe, summary(recipe, recipe.arms, records), records, tmp_path, reduced=False)
    assert (RESULTS / name / "table.md").read_text(encoding="utf-8") == (tmp_path / "table.md").read_text(encoding="utf-8")


@pytest.mark.skipif(not matplotlib.__version__.startswith("3.11."), reason="the figures were drawn with matplotlib 3.11")
@pytest.mark.parametrize("name", WHOLE)
def test_the_figures_are_those_of_the_runs(name, tmp_path):
    """Up to the last digits of a number, which depend on the processor."""
    draw(RECIPES[name], RECIPES[name].arms, runs(name), tmp_path)
    kept = {path.name: path.read_text(encoding="utf-8") for path in (RESULTS / name / "figures").glob("*.svg")}
    drawn = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.glob("*.svg")}
    assert kept.keys() == drawn.keys()
    for figure in kept:
        assert NUMBER.sub("", kept[figure]) == NUMBER.sub("", drawn[figure]), figure
        there, here = (np.array(NUMBER.findall(text[figure]), dtype=float) for text in (kept, drawn))
        np.testing.assert_allclose(there, here, rtol=1e-5, atol=1e-4, err_msg=figure)
