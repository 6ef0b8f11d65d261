"""In a browser, no page overflows a phone or a desk, all text can be read, and print shows what is folded."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from browser import open_page
from privet import report
from privet.accounting import Event
from privet.accounting.guarantee import tradeoff
from privet.evaluation import tabulate
from privet.report import comparison

INSPECT = (Path(__file__).parent / "inspect_page.js").read_text(encoding="utf-8")

MEANING = tradeoff.meaning([Event(1.0, 1.2)], delta=1e-5)
CLAIMED = {
    "epsilon": float(MEANING.profile.epsilons[-1]), "meaning": MEANING.to_dict(),
    "epsilon_by_accountant": {"pld": 3.0, "rdp": 3.273, "moments": 3.755, "strong": 64.1, "basic": 122.3, "gdp": 2.89},
}  # fmt: skip
CALIBRATED = {
    "brier": 0.0312,
    "calibration": tabulate([0.99] * 9000 + [0.7] * 1000, [True] * 9825 + [False] * 175).to_dict(),
    "true_class": tabulate([0.99] * 9825 + [0.1] * 175, [True] * 9825 + [False] * 175).to_dict(),
    "intervals": {"brier": [0.0302, 0.0322], "expected_calibration_error": [0.019, 0.0241]},
}
REGRESSION = {
    "task": "regression", "mean_squared_error": 0.41, "mean_absolute_error": 0.48, "r_squared": 0.31, "examples": 980,
    "intervals": {"mean_squared_error": [0.37, 0.45], "mean_absolute_error": [0.45, 0.51]},
}  # fmt: skip
HELD_OUT = {
    "task": "regression", "metrics": {"mean_absolute_error": 0.5, "root_mean_squared_error": 0.7}, "examples": 287,
    "intervals": {"mean_absolute_error": [0.4, 0.6], "root_mean_squared_error": [0.6, 0.8]}, "unit": "example", "epsilon": 0.1,
    "delta": 1e-6, "noise_multiplier": 30.0,
}  # fmt: skip


def write_single(folder: Path, write: Callable[..., Path]) -> Iterator[tuple[str, Path]]:
    """Yield pages of one run by name."""
    full = write(folder / "full", guarantee=CLAIMED, evaluation=CALIBRATED)
    yield "full", full
    yield "unfinished", write(folder / "unfinished", status={"state": "unfinished", "steps_done": 940}, evaluation=None)
    regression = write(folder / "regression", evaluation=None, metrics=None)
    (regression / "evaluation.json").write_text(json.dumps(REGRESSION), encoding="utf-8")
    (regression / "schema.toml").write_text(f"[columns]\nage = {{ values = [{', '.join(map(str, range(90)))}] }}\n", "utf-8")
    (regression / "holdout.json").write_text(json.dumps(HELD_OUT), encoding="utf-8")
    yield "regression", regression
    named = {"data": "/a/path/" + "without-end" * 20 + ".csv", "model": "x" * 80, "test_data": "y" * 200}
    yield "long names", write(folder / "named", guarantee={"unit": "one " + "household" * 9}, run=named)


def write_several(folder: Path, write: Callable[..., Path]) -> Path:
    """Return the page of a comparison."""
    runs = [
        write(folder / ("a-rather-long-name-" * number), plan={"steps": 10**number}, run={"learning_rate": 0.1 * number})
        for number in range(1, 6)
    ]
    return comparison.write(runs, folder / "page of five runs")


PAGES = ("full", "unfinished", "regression", "long names", "five runs")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory, run_writer: Callable[..., Path]) -> dict[str, Path]:
    """Return the path of each page."""
    folder = tmp_path_factory.mktemp("pages")
    single = {name: report.write(directory) for name, directory in write_single(folder, run_writer)}
    return {**single, "five runs": write_several(folder, run_writer)}


@pytest.fixture(scope="module")
def show(pages: dict[str, Path]) -> Iterator[Callable[..., Any]]:
    """Start a browser, and return a function that opens a page."""
    with open_page() as page:

        def show(name: str, width: int, scheme: str = "light", media: str = "screen") -> Any:
            resize(page, width, scheme, media)
            page.goto(pages[name].as_uri())
            return page

        yield show


def resize(page: Any, width: int, scheme: str, media: str = "screen") -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(media=media, color_scheme=scheme)


# What is folded, colours and widths: what overflows does not depend on colours, nor contrast on widths or on what is folded.
WAYS = [(False, 390, "light"), (True, 390, "light"), (True, 800, "dark")]


@pytest.mark.parametrize("name", PAGES)
def test_nothing_overflows_and_all_text_can_be_read(show, name):
    page, found = show(name, 1280), {}
    for unfolded, width, scheme in WAYS:
        page.evaluate(f"document.querySelectorAll('details').forEach((fold) => {{ fold.open = {json.dumps(unfolded)}; }})")
        resize(page, width, scheme)
        found[unfolded, width, scheme] = page.evaluate(INSPECT)
    assert {place: problems for place, problems in found.items() if problems} == {}


def test_dark_is_dark(show):
    colour = "getComputedStyle(document.body).backgroundColor"
    assert show("full", 800, "light").evaluate(colour) == "rgb(255, 255, 255)"
    assert show("full", 800, "dark").evaluate(colour) != "rgb(255, 255, 255)"


def test_the_five_numbers_and_a_figure_are_on_the_first_screen(show):
    bottom = "(what) => document.querySelector(what).getBoundingClientRect().bottom"
    page = show("full", 1280)
    assert page.evaluate(bottom, ".tile:last-child") < page.evaluate(bottom, "svg") < 900
    assert show("full", 390).evaluate(bottom, ".tile:last-child") < 900


def test_print_shows_what_is_folded_on_white(show):
    visible = "[...document.querySelectorAll('.folded > *')].map((part) => part.checkVisibility())"
    assert not any(show("full", 800).evaluate(visible))
    printed = show("full", 800, "dark", media="print")
    assert all(printed.evaluate(visible))
    assert printed.evaluate("Math.max(...[...document.querySelectorAll('h2')].map((one) => one.offsetHeight))") < 40
    assert printed.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def test_the_inspection_sees_what_is_wrong(show):
    page = show("full", 390)
    page.add_style_tag(content=".kicker { width: 500px; } h1 { color: #999; } figure svg { width: 60% !important; }")
    found = " ".join(page.evaluate(INSPECT))
    assert "the page is" in found
    assert 'Private training report" ends at 516' in found
    assert "has a contrast of 2.8" in found
    assert " px high" in found
