"""All runs of every recipe are kept, and its page, its numbers and its figures are those of the runs."""

import csv
import re
from dataclasses import replace
from functools import cache
from itertools import zip_longest
from pathlib import Path

import numpy as np
import pytest
from drawings import numbers, words

from privet_experiments import RECIPES, Records, finished_runs
from privet_experiments.reproduction.charts import draw
from privet_experiments.reproduction.pages import rebuild

RESULTS = Path(__file__).parents[2] / "docs" / "results"
# Drawing takes seconds for each: a few in `make test`, all in `make test-slow`.
FEW = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if place % 8 else ()) for place, name in enumerate(RECIPES)]
)
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?")


def runs(name):
    return finished_runs(RECIPES[name], Records(RESULTS / name / "runs.jsonl"))


def test_every_run_is_there():
    assert {name: len(runs(name)) for name in RECIPES} == {name: recipe.runs for name, recipe in RECIPES.items()}


@pytest.fixture(scope="module")
def rebuilt(tmp_path_factory):
    """Return what makes a recipe's folder from its runs again, once."""
    root = tmp_path_factory.mktemp("rebuilt")

    @cache
    def build(name):
        (root / name).mkdir()
        (root / name / "runs.jsonl").write_bytes((RESULTS / name / "runs.jsonl").read_bytes())
        rebuild(RECIPES[name], root / name)
        return root / name

    return build


def number(cell):
    """Return whether a cell is one; an infinite ε is compared as a word."""
    return bool(NUMBER.fullmatch(cell))


def last_place(number):
    """Return the worth of the last digit that a number is written with."""
    digits, _, power = number.partition("e")
    return 10.0 ** (int(power or 0) - len(digits.partition(".")[2]))


def same_but_for_rounding(kept, made):
    """Return whether two texts are equal, up to 1 in the last digit of a number: a tie can be rounded to either side."""
    there, here = NUMBER.findall(kept), NUMBER.findall(made)
    return NUMBER.split(kept) == NUMBER.split(made) and all(
        one == other or abs(float(one) - float(other)) <= 1.01 * max(last_place(one), last_place(other))
        for one, other in zip(there, here, strict=True)
    )


def differs(kept, drawn):
    """Return what two figures show that is not the same, as a word."""
    if words(kept) != words(drawn):
        return "words"
    if len(numbers(kept)) != len(numbers(drawn)):
        return "number of marks"
    pairs = zip(numbers(kept), numbers(drawn), strict=True)
    close = all(
        one.shape == other.shape and np.allclose(one, other, rtol=2e-5, atol=1e-12, equal_nan=True) for one, other in pairs
    )
    return "" if close else "numbers"


@FEW
def test_the_table_is_that_of_the_runs(name, rebuilt):
    kept, made = ((folder / "table.md").read_text(encoding="utf-8").splitlines() for folder in (RESULTS / name, rebuilt(name)))
    assert [one for one in zip_longest(kept, made, fillvalue="") if not same_but_for_rounding(*one)] == []


@FEW
def test_the_numbers_behind_the_table_are_those_of_the_runs(name, rebuilt):
    kept, made = (list(csv.reader((folder / "table.csv").open(encoding="utf-8"))) for folder in (RESULTS / name, rebuilt(name)))
    for one, other in zip(kept, made, strict=True):
        assert [cell for cell in one if not number(cell)] == [cell for cell in other if not number(cell)]
        assert [float(c) for c in one if number(c)] == pytest.approx([float(c) for c in other if number(c)], rel=1e-9, abs=1e-12)


@FEW
def test_the_figures_show_the_numbers_of_the_runs(name, rebuilt):
    kept = {path.name: path.read_text(encoding="utf-8") for path in (RESULTS / name / "figures").glob("*.svg")}
    drawn = {path.name: path.read_text(encoding="utf-8") for path in (rebuilt(name) / "figures").glob("*.svg")}
    assert kept.keys() == drawn.keys()
    assert {figure: found for figure in kept if (found := differs(kept[figure], drawn[figure]))} == {}


def test_a_digit_more_than_rounding_is_seen():
    assert same_but_for_rounding("| A | 97.24 % ± 0.18 % |", "| A | 97.25 % ± 0.18 % |")
    assert same_but_for_rounding("3.06e-08", "3.07e-08")
    for made in ("| A | 97.26 % ± 0.18 % |", "| B | 97.24 % ± 0.18 % |", "| A | 97.24 % |", "| A | -97.24 % ± 0.18 % |"):
        assert not same_but_for_rounding("| A | 97.24 % ± 0.18 % |", made)


def test_another_number_or_word_in_a_figure_is_seen(tmp_path):
    recipe, records = replace(RECIPES["psasc-mnist"], charts=RECIPES["psasc-mnist"].charts[:1]), runs("psasc-mnist")
    first, *rest = records
    better = replace(first, metrics=first.metrics | {"accuracy": first.metrics["accuracy"] + 1e-3})
    renamed = [replace(arm, name=f"{arm.name}'") for arm in recipe.arms]
    kept = (RESULTS / "psasc-mnist" / "figures" / "accuracy.svg").read_text(encoding="utf-8")
    for arms, found, expected in (
        (recipe.arms, records, ""),
        (recipe.arms, [better, *rest], "numbers"),
        (recipe.arms[1:], records, "words"),
        (renamed, [replace(record, arm=f"{record.arm}'") for record in records], "words"),
    ):
        draw(recipe, arms, found, tmp_path)
        assert differs(kept, (tmp_path / "accuracy.svg").read_text(encoding="utf-8")) == expected
