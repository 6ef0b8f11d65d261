"""The report page of one run, the templates of all pages, and the files that a report consists of."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
from markupsafe import Markup, escape

from privet._utils.files import write_text
from privet.accounting.rounding import format_percent_down, format_percent_up
from privet.evaluation import Evaluation
from privet.report import numbers, run_files, setting_rows
from privet.report.figures import accountants
from privet.report.figures.single_run import draw
from privet.report.figures.svg import Figure
from privet.report.headline import Estimate, list_estimates, list_numbers, list_recalls, list_released, warn_of_majority
from privet.report.releases import Release, list_releases
from privet.report.run_files import Run

_MOST_CLASSES = 20  # whose columns fit on a page
# Element → pattern at the start of a line. A line that matches none continues the line before it.
_MARKS = {"ul": re.compile(r"\s*[-*•]\s+(?=\S)"), "ol": re.compile(r"\s*\d+[.)]\s+(?=\S)"), "h3": re.compile(r"#{1,6}\s+(?=\S)")}
_INLINE = ((re.compile(r"`([^`]+)`"), r"<code>\1</code>"), (re.compile(r"\*\*(.+?)\*\*"), r"<strong>\1</strong>"))


class PageTable(NamedTuple):
    """A table of a page; cells are text or markup, the first of a row its heading. `marked` are columns to highlight, from 0."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    kind: str
    marked: Sequence[int] = ()


def render_template(name: str, **context: Any) -> str:
    """Return a page without external resources from a file in `assets`; all values but markup are escaped."""
    return _environment().get_template(name).render(context)


@functools.cache
def _environment() -> jinja2.Environment:
    found = jinja2.Environment(
        loader=jinja2.PackageLoader("privet.report", "assets"), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    filters: dict[str, Any] = {
        "epsilon": numbers.format_epsilon, "power_of_ten": numbers.format_power_of_ten, "value": numbers.format_value,
        "prose": to_markup,
    }  # fmt: skip
    found.filters.update(filters)
    return found


def noted(value: str, note: str) -> Markup:
    """Return a cell with a note under its value, if there is one."""
    return Markup('{}<span class="note">{}</span>').format(value, note) if note else escape(value)


def write(directory: Path | str) -> Path:
    """Write `report.html` and `figures/*.svg` into a run directory, from the other files in it; return the path of the report.

    Only `plan.json` is required; sections whose files are missing are left out. Writing again replaces the report, and the same
    files give the same report, byte for byte.

    Args:
        directory: the run directory, as `privet train --out` writes it.

    Raises:
        InvalidArgumentError: `directory` contains no `plan.json`, or one of its files is damaged.
    """
    run = run_files.read(Path(directory))
    figures = draw(run)
    for figure in figures:
        write_text(run.directory / "figures" / f"{figure.name}.svg", figure.svg)
    return write_text(run.directory / "report.html", render_page(run, figures))


def render_page(run: Run, drawn: Sequence[Figure]) -> str:
    """Return the report of a run as one HTML document: five numbers and their figures first, details folded."""
    words = [str(run.setup[key]) for key in ("model", "data") if run.setup.get(key)]
    subject = " on ".join(words) or run.directory.resolve().name
    return render_template(
        "run.html",
        title=f"{subject}: Privet report",
        subject=subject,
        run=run,
        banners=list(_banners(run)),
        numbers=list_numbers(run),
        figures=lambda *names: [figure for name in names for figure in drawn if figure.name == name],
        logged=[figure for figure in drawn if figure.name.startswith("logged-")],
        attacks=_attacks(run),
        estimates=_estimates((*list_estimates(run.evaluation), *list_recalls(run.evaluation))) if run.evaluation else None,
        classes=run.evaluation.names if isinstance(run.evaluation, Evaluation) else (),
        most_classes=_MOST_CLASSES,
        released=_estimates(list_released(run.held_out)) if run.held_out else None,
        communication=_communication(run),
        accountants=_accountants(run),
        settings=list(_settings(run)),
        releases=PageTable(("Output", "Files", "Status", "Reason"), list(map(_release, list_releases(run))), "releases"),
    )


def _banners(run: Run) -> Iterator[tuple[str, str]]:
    if run.status and not run.status.complete:
        spent = next((m.epsilon for m in reversed(run.measurements) if m.epsilon is not None), None)
        so_far = "" if spent is None else f" ε at the last recorded step: {numbers.format_epsilon(spent)}."
        planned = "" if run.status.steps_planned is None else f" of {run.status.steps_planned:,} planned"
        yield "This run is unfinished.", f"{run.status.steps_done:,}{planned} steps are done.{so_far}"
    if run.guarantee and math.isinf(run.guarantee.epsilon):
        yield "No privacy.", "ε is infinite, so there is no guarantee: treat the model like its training examples."
    for text in warn_of_majority(run.evaluation):
        yield "Accuracy says little here:", f"{text}."


def _attacks(run: Run) -> PageTable | None:
    known = run.guarantee.meaning if run.guarantee else None
    if known is None:
        return None
    rare, few = (format_percent_up(share) for share in (known.found_at_one_in_a_thousand, known.found_at_one_in_a_hundred))
    rows = (
        ("True minus false positive rate", f"at most {format_percent_up(known.advantage)}", "0 %"),
        ("True positive rate at 0.1 % false positives", f"at most {rare}", "0.1 %"),
        ("True positive rate at 1 % false positives", f"at most {few}", "1 %"),
        ("Error rate if membership is a fair coin flip", f"at least {format_percent_down(known.bayes_risk)}", "50 %"),
    )
    return PageTable(("Membership attack", "Limit", "Guessing"), rows, "")


def _estimates(found: Sequence[Estimate]) -> PageTable:
    rows = [(one.name, one.shown, one.interval_shown, one.definition) for one in found]
    return PageTable(("Metric", "Value", "95 % interval", "Definition"), rows, "estimates")


def _communication(run: Run) -> PageTable | None:
    if not run.communication:
        return None
    parts = {"client": "A client in a round", "round": "A round", "epoch": "An epoch", "run": "The run"}
    columns = {"up": "Sent by clients", "dense_up": "Dense", "down": "Received by clients", "dense_down": "Dense"}
    rows = [
        (name, *(numbers.format_bytes(run.communication[part][column]) for column in columns)) for part, name in parts.items()
    ]
    return PageTable(("Bytes of", *columns.values()), rows, "")


def _accountants(run: Run) -> PageTable | None:
    claims = run.guarantee.epsilon_by_accountant if run.guarantee else {}
    rows = [
        (noted(known.name, f" {known.full_name}"), known.show(value), noted(known.direction, known.meaning))
        for known, value in ((accountants.describe(key), value) for key, value in claims.items())
    ]
    return PageTable(("Accountant", "ε", "Relation to the true ε"), rows, "accountants") if rows else None


def _settings(run: Run) -> Iterator[tuple[str, PageTable]]:
    defaults = setting_rows.list_defaults(run.setup)
    plan = {key: value for key, value in run.plan.items() if key != "schema"}
    setup = {key: value for key, value in run.setup.items() if key != "defaults"}
    for title, values in (("Plan", plan), ("Training", setup)):
        if values:
            yield title, PageTable((), list(setting_rows.flatten(values, defaults)), "settings")


def _release(release: Release) -> tuple[str, ...]:
    files = Markup(", ").join(Markup("<code>{}</code>").format(name) for name in release.files)
    status = Markup('<span class="status {}">{}</span>').format(release.status.name.lower(), release.status.value)
    return release.what, files, status, release.why


def to_markup(prose: str) -> Markup:
    """Return plain text with simple Markdown as HTML. Blank lines separate paragraphs; HTML in it is escaped."""
    blocks = groupby(_parse_blocks(prose), lambda block: block[0])
    return Markup("\n").join(_render(kind, [_render_inline(words) for _, words in found]) for kind, found in blocks)


def _parse_blocks(prose: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    goes_on = False
    for line in prose.splitlines():
        kind = next((name for name, mark in _MARKS.items() if mark.match(line)), "p" if line.strip() else "")
        if kind == "p" and goes_on:
            found[-1] = (found[-1][0], f"{found[-1][1]} {line.strip()}")
        elif kind:
            found.append((kind, (_MARKS[kind].sub("", line, count=1) if kind in _MARKS else line).strip()))
        goes_on = kind not in ("", "h3")
    return found


def _render(kind: str, contents: list[Markup]) -> Markup:
    if kind in ("ul", "ol"):
        return Markup(f"<{kind}>") + Markup("").join(map(Markup("<li>{}</li>").format, contents)) + Markup(f"</{kind}>")
    return Markup("\n").join(map(Markup(f"<{kind}>{{}}</{kind}>").format, contents))


def _render_inline(content: str) -> Markup:
    marked = str(escape(content))
    for pattern, replacement in _INLINE:
        marked = pattern.sub(replacement, marked)
    return Markup(marked)
