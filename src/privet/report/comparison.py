"""Comparison of several runs on one page: what was varied, and the numbers of each."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from privet._utils.files import write_text
from privet.errors import InvalidArgumentError
from privet.report import numbers, run_files, setting_rows
from privet.report.headline import KeyNumber, list_estimates, list_numbers
from privet.report.page import PageTable, noted, render_template
from privet.report.run_files import Run

# Not chosen for the training: what the run itself wrote down.
_ADMINISTRATIVE = frozenset(
    ("seconds", "versions", "provenance", "gradients", "parameters", "test_data", "defaults", "schema", "purpose")
)
# Keys of plans that mean something else in a setup.
_IN_PLANS = {"momentum": "momentum of each example", "holdout": "held-out evaluation"}
# Settings that are also one of the five numbers.
_NUMBERS = {"ε": "epsilon", "noise multiplier": "noise", "steps": "steps"}
# Repetitions differ in these, or they change where a run is computed and not what.
_NO_CAUSES = frozenset({"seed", "device", "physical batch size", "folder"})
# Numbers that are shown for every run, even if they agree.
_ALWAYS = frozenset({"quality", "steps"})
_UNSET = "none"


@dataclass(frozen=True, slots=True)
class Variation:
    """The settings of several runs, for display: name → value in each run.

    Those that were chosen differently (if the noise was, this is ε); those that follow: the noise of runs with the same ε, and
    what a rule for defaults chose in all runs; and those that agree.
    """

    varied: Mapping[str, tuple[str, ...]]
    follows: Mapping[str, tuple[str, ...]]
    same: Mapping[str, tuple[str, ...]]

    @property
    def summary(self) -> str:
        """A few sentences on what the runs differ in, and what follows from that."""
        causes, follows = [name for name in self.varied if name not in _NO_CAUSES], [*self.follows]
        then = f" The {_enumerate(follows)} {'follow' if follows[1:] else 'follows'} from that." if follows else ""
        if not causes:
            return "No setting that affects the result was varied: the results differ by chance."
        if len(causes) == 1:
            chance = "Runs also differ by chance, so repeat each of them before you draw a conclusion."
            return f"One setting was varied: {causes[0]}.{then} {chance}"
        several = "A difference between two runs that differ in several of them cannot be put down to one."
        return f"{len(causes)} settings were varied: {_enumerate(causes)}.{then} {several}"


def find_variation(runs: Sequence[Run]) -> Variation:
    """Return what was varied between at least two runs."""
    found = list(map(_settings, runs))
    settings = {name: tuple(run.get(name, _UNSET) for run in found) for run in found for name in run}
    differs = {name: values for name, values in settings.items() if len(set(values)) > 1}
    epsilons = [run.guarantee.epsilon if run.guarantee else math.inf for run in runs]
    by_default = frozenset.intersection(*(setting_rows.list_defaults(run.setup) for run in runs))
    varied, follows = {}, {}
    for name, values in differs.items():
        noise = name == "noise multiplier" and all(map(math.isfinite, epsilons))
        if (noise and len({f"{epsilon:.3g}" for epsilon in epsilons}) == 1) or name in by_default:
            follows[name] = values
        elif noise:
            varied["ε"] = tuple(map(numbers.format_epsilon, epsilons))
        else:
            varied[name] = values
    return Variation(varied, follows, {name: values for name, values in settings.items() if name not in differs})


def _settings(run: Run) -> dict[str, str]:
    """Return the settings that somebody chose, with the first digits of its fingerprint for a table's schema."""
    plan: dict[str, Any] = {_IN_PLANS.get(key, key): value for key, value in run.plan.items()}
    if isinstance(schema := plan.get("schema"), Mapping):
        plan["schema"] = hashlib.sha256(json.dumps(schema, sort_keys=True).encode()).hexdigest()[:8]
    setup = {key: value for key, value in run.setup.items() if key not in _ADMINISTRATIVE}
    return dict(setting_rows.flatten(plan)) | dict(setting_rows.flatten(setup))


def write(directories: Sequence[Path | str], out: Path | str) -> Path:
    """Write `report.html` of a comparison of at least two run directories into `out`, which must not hold a run."""
    if len(directories) < 2:
        fix = "For one run, use privet.report.write."
        raise InvalidArgumentError("directories", [str(one) for one in directories], "at least two", fix)
    target = Path(out)
    if (target / "plan.json").exists():
        raise InvalidArgumentError("--out", str(target), "a directory that holds no run", "Its report would be overwritten.")
    runs = [run_files.read(Path(one)) for one in directories]
    variation, names = find_variation(runs), _name([run.directory.resolve() for run in runs])
    found = [{number.key: number for number in list_numbers(run)} for run in runs]
    page = render_template(
        "comparison.html", title=f"Privet: comparison of {len(runs)} runs", number=len(runs), summary=variation.summary,
        numbers=list(_summarise(found)), runs=_tabulate_runs(names, found, variation), metrics=_tabulate_metrics(names, runs),
        same=PageTable((), [(name, values[0]) for name, values in variation.same.items()], "settings"),
    )  # fmt: skip
    return write_text(target / "report.html", page)


def _name(directories: Sequence[Path]) -> list[str]:
    """Return the shortest ends of the paths that differ from each other."""
    depth = next((depth for depth in range(1, 9) if len({one.parts[-depth:] for one in directories}) == len(set(directories))), 1)
    return ["/".join(one.parts[-depth:]) for one in directories]


def _summarise(runs: Sequence[Mapping[str, KeyNumber]]) -> Iterator[KeyNumber]:
    """Yield the five numbers of all runs: the common value, or the smallest and the largest."""
    for key in dict.fromkeys(key for run in runs for key in run):
        known = [run[key] for run in runs if key in run and not math.isnan(run[key].amount)]
        if len({number.name for number in known}) != 1:
            continue
        first, last = (choose(known, key=lambda number: number.amount) for choose in (min, max))
        if first.value == last.value:
            about = first.about if len(known) == len(runs) else f"{first.about}; {len(known)} of {len(runs)} runs"
            yield KeyNumber(key, first.name, first.value, first.amount, about)
        else:
            # A common sign stands before the range, and a common unit after it.
            low, high = first.value.removesuffix("\N{NO-BREAK SPACE}%"), last.value.removeprefix("≤\N{NO-BREAK SPACE}")
            yield KeyNumber(key, first.name, f"{low} to {high}", first.amount, f"lowest and highest of {len(known)} runs")


def _tabulate_runs(names: Sequence[str], runs: Sequence[Mapping[str, KeyNumber]], variation: Variation) -> PageTable:
    """Return a table with a row per run, and a column per number that differs and per varied setting."""
    keys = dict.fromkeys(key for run in runs for key in run)
    shown = [key for key in keys if key in _ALWAYS or len({run[key].value for run in runs if key in run}) > 1]
    heads = {key: _head([run[key] for run in runs if key in run]) for key in shown}
    settings = {
        name: values for name, values in {**variation.varied, **variation.follows}.items() if _NUMBERS.get(name) not in shown
    }
    varied = [_NUMBERS.get(name) for name in variation.varied]
    marks = [False, *(key in varied for key in shown), *(name in variation.varied for name in settings)]
    rows = [
        (_code(name), *(_cell(run.get(key), heads[key]) for key in shown), *(values[place] for values in settings.values()))
        for place, (name, run) in enumerate(zip(names, runs, strict=True))
    ]
    head = ("Run", *heads.values(), *(f"{name[:1].upper()}{name[1:]}" for name in settings))
    return PageTable(head, rows, "runs", [place for place, mark in enumerate(marks) if mark])


def _head(column: Sequence[KeyNumber]) -> str:
    """Return the name of a column's numbers; runs of different tasks have different ones."""
    names = {number.name for number in column if not math.isnan(number.amount)} or {column[0].name}
    return names.pop() if len(names) == 1 else "Result"


def _cell(number: KeyNumber | None, head: str) -> str:
    if number is None:
        return ""
    named = number.name != head and not math.isnan(number.amount)
    return noted(f"{number.name} {number.value}" if named else number.value, number.detail)


def _tabulate_metrics(names: Sequence[str], runs: Sequence[Run]) -> PageTable:
    found = [{one.name: one for one in list_estimates(run.evaluation)} if run.evaluation else {} for run in runs]
    metrics = list(dict.fromkeys(name for one in found for name in one))
    rows = [
        (_code(name), *(noted(one[key].shown, one[key].interval_shown) if key in one else "" for key in metrics))
        for name, one in zip(names, found, strict=True)
    ]
    return PageTable(("Run", *metrics), rows, "metrics")


def _code(name: str) -> Markup:
    return Markup("<code>{}</code>").format(name)


def _enumerate(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
