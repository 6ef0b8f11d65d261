"""The page of results says "whole" of exactly the experiments whose runs are all there."""

import re
from pathlib import Path

from privet.recipes import RECIPES, Records, done

RESULTS = Path(__file__).parents[2] / "docs" / "results"
PAGE = (RESULTS / "README.md").read_text(encoding="utf-8")
ROWS = [
    (re.findall(r"`([a-z0-9-]+)`", cells[1]), cells[2].strip())
    for cells in (line.strip("|").split("|") for line in PAGE.splitlines() if line.startswith("| "))
    if "`" in cells[1]
]


def test_every_recipe_of_a_paper_has_a_row():
    named = {name for names, _ in ROWS for name in names}
    assert named == {name for name in RECIPES if not name.endswith("-parts")}


def test_whole_are_those_with_all_runs():
    for names, state in ROWS:
        whole = all(done(RECIPES[name], Records(RESULTS / name / "runs.jsonl")) == RECIPES[name].runs for name in names)
        assert state.startswith("whole") == whole, f"{names}: {state}"
