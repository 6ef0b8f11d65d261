"""Comparison of several runs: one page with what was varied, the five numbers of each run, and figures."""

from __future__ import annotations

__all__ = ["write"]

import math
from collections.abc import Sequence
from pathlib import Path

from privet._utils.files import write_text
from privet.errors import InvalidArgumentError
from privet.report import run_files
from privet.report.comparison import several_runs
from privet.report.comparison.points import Point
from privet.report.comparison.variation import Variation, find_variation
from privet.report.estimates import headline, list_estimates
from privet.report.headline import KeyNumber, list_numbers
from privet.report.markup import NOTHING, Markup, element, join, table, text
from privet.report.run_files import Run
from privet.report.sections import document, fold, panels, section, tiles
from privet.report.setting_rows import ComparedSetting

_ADVICE = (
    "Each ε holds for its run alone. Training several models on the same private data, or selecting the best of them, costs more "
    "than any single run; privet.tuning.search accounts for that."
)
# Shown for every run, even if they agree.
_ALWAYS = frozenset({"quality", "steps"})


def write(directories: Sequence[Path | str], out: Path | str) -> Path:
    """Write `report.html` and `figures/*.svg` of a comparison of runs.

    Args:
        directories: at least two run directories, as `privet train --out` writes them.
        out: directory for the comparison, created if necessary; it must not hold a run.

    Returns:
        The path of `report.html`.

    Raises:
        InvalidArgumentError: there are fewer than two directories, one is not a run, or `out` holds a run.
    """
    if len(directories) < 2:
        raise InvalidArgumentError(
            "directories", [str(one) for one in directories], "at least two", "For one run, use privet.report.write."
        )
    target = Path(out)
    if (target / "plan.json").exists():
        raise InvalidArgumentError("--out", str(target), "a directory that holds no run", "Its report would be overwritten.")
    runs = [run_files.read(Path(one)) for one in directories]
    variation = find_variation(runs)
    names = _name([run.directory.resolve() for run in runs])
    points = [_to_point(run, name, variation, place) for place, (run, name) in enumerate(zip(runs, names, strict=True))]
    drawn = tuple(several_runs.draw(points, variation.axes, variation.consequence))
    for figure in drawn:
        write_text(target / "figures" / f"{figure.name}.svg", figure.svg)
    numbers = [{number.key: number for number in list_numbers(run)} for run in runs]
    content = join(
        (
            element(
                "header",
                element("p", text("Comparison of private trainings"), class_="kicker"),
                element("h1", text(f"{len(runs)} runs")),
                element("p", text(variation.summary), class_="lead"),
                tiles(_summarise(numbers)),
                panels(*(figure for figure in drawn)),
            ),
            section("Runs", _table(names, numbers, variation), element("p", text(_ADVICE), class_="note")),
            fold("All metrics", "of the final models on their test sets", _metrics(names, runs)),
            fold("Same in all runs", f"{len(variation.same)} settings", _settings(variation.same)),
        )
    )
    return write_text(target / "report.html", document(f"Privet: comparison of {len(runs)} runs", content))


def _name(directories: Sequence[Path]) -> list[str]:
    """Return the shortest ends of the paths that differ from each other."""
    depth = next((depth for depth in range(1, 9) if len({one.parts[-depth:] for one in directories}) == len(set(directories))), 1)
    return ["/".join(one.parts[-depth:]) for one in directories]


def _to_point(run: Run, name: str, variation: Variation, place: int) -> Point:
    best = headline(run.evaluation) if run.evaluation else None
    found = ((m.epsilon, m.test_accuracy if best and best.is_share else m.test_error) for m in run.measurements)
    return Point(
        name=name,
        varied=", ".join(f"{setting.name} {setting.shown[place]}" for setting in variation.causes),
        quality=best,
        progress=tuple((epsilon, value) for epsilon, value in found if epsilon is not None and value is not None),
    )


def _summarise(runs: Sequence[dict[str, KeyNumber]]) -> list[KeyNumber]:
    """Return the five numbers of all runs: the common value, or the smallest and the largest."""
    found = []
    for key in dict.fromkeys(key for run in runs for key in run):
        known = [run[key] for run in runs if key in run and not math.isnan(run[key].amount)]
        if not known:
            continue
        first, last = (choose(known, key=lambda number: number.amount) for choose in (min, max))
        if first.value == last.value:
            about = first.about if len(known) == len(runs) else f"{first.about}; {len(known)} of {len(runs)} runs"
            found.append(KeyNumber(key, first.name, first.value, first.amount, about))
        elif first.name == last.name:
            about = f"lowest and highest of {len(known)} runs"
            found.append(KeyNumber(key, first.name, _join_range(first.value, last.value), first.amount, about))
    return found


def _join_range(low: str, high: str) -> str:
    """Return "low to high", with a common sign before them and a common unit after them once."""
    unit = "\N{NO-BREAK SPACE}%"
    if low.endswith(unit) and high.endswith(unit):
        low = low.removesuffix(unit)
    sign = "≤\N{NO-BREAK SPACE}"
    return f"{low} to {high.removeprefix(sign) if low.startswith(sign) else high}"


def _table(names: Sequence[str], numbers: Sequence[dict[str, KeyNumber]], variation: Variation) -> Markup:
    """Return a table with a row per run, and a column per number that differs and per varied setting."""
    keys = list(dict.fromkeys(key for run in numbers for key in run))
    shown = [key for key in keys if key in _ALWAYS or len({run[key].value for run in numbers if key in run}) > 1]
    settings = [setting for setting in (*variation.varied, *variation.follows) if setting.number not in shown]
    heads = {key: _head([run[key] for run in numbers if key in run]) for key in shown}
    names_varied = {setting.name for setting in variation.varied}
    numbers_varied = {setting.number for setting in variation.varied}
    marks = [False, *(key in numbers_varied for key in shown), *(setting.name in names_varied for setting in settings)]
    rows = (
        [
            element("code", text(name)),
            *(_cell(run.get(key), heads[key]) for key in shown),
            *(text(setting.shown[place]) for setting in settings),
        ]
        for place, (name, run) in enumerate(zip(names, numbers, strict=True))
    )
    head = ("Run", *heads.values(), *(_capitalise(setting.name) for setting in settings))
    return table(head, rows, class_="runs", marked=[place for place, mark in enumerate(marks) if mark])


def _head(column: Sequence[KeyNumber]) -> str:
    """Return the name of a column's numbers; runs of different tasks have different ones."""
    names = {number.name for number in column if not math.isnan(number.amount)} or {column[0].name}
    return names.pop() if len(names) == 1 else "Result"


def _cell(number: KeyNumber | None, head: str) -> Markup:
    if number is None:
        return NOTHING
    named = number.name != head and not math.isnan(number.amount)
    return _with_note(f"{number.name} {number.value}" if named else number.value, number.detail)


def _with_note(value: str, note: str) -> Markup:
    return Markup(text(value) + (element("span", text(note), class_="note") if note else NOTHING))


def _metrics(names: Sequence[str], runs: Sequence[Run]) -> Markup:
    """Return a table of all metrics by run."""
    found = [{one.name: one for one in list_estimates(run.evaluation)} if run.evaluation else {} for run in runs]
    metrics = list(dict.fromkeys(name for one in found for name in one))
    rows = (
        [
            element("code", text(name)),
            *(_with_note(one[key].shown, one[key].interval_shown) if key in one else NOTHING for key in metrics),
        ]
        for name, one in zip(names, found, strict=True)
    )
    return table(("Run", *metrics), rows, class_="metrics") if metrics else NOTHING


def _settings(settings: Sequence[ComparedSetting]) -> Markup:
    return table((), ((text(setting.name), text(setting.shown[0])) for setting in settings), class_="settings")


def _capitalise(name: str) -> str:
    return name[:1].upper() + name[1:]
