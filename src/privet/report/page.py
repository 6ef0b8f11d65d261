"""Assemble the report page of one run: five numbers and their figures first, details folded."""

from __future__ import annotations

__all__ = ["Section", "render_page"]

import math
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any

from privet.accounting.rounding import format_percent_down, format_percent_up
from privet.evaluation import Evaluation
from privet.report import confusion, numbers, prose, setting_rows
from privet.report.estimates import Estimate, list_estimates, list_released
from privet.report.figures import accountants
from privet.report.figures.svg import Figure
from privet.report.headline import list_numbers
from privet.report.markup import NOTHING, Markup, element, join, table, text
from privet.report.releases import Release, list_releases
from privet.report.run_files import Run
from privet.report.sections import document, fold, panels, section, tiles

_EQUALS = "\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}"

Section = Callable[[Run, dict[str, Figure]], Markup]


def render_page(run: Run, figures: tuple[Figure, ...]) -> str:
    """Return the report as one HTML document without external resources.

    Args:
        run: contents of a run directory.
        figures: its rendered figures; each section takes the ones that it shows.
    """
    named = {figure.name: figure for figure in figures}
    return document(f"{_subject(run)}: Privet report", join(part(run, named) for part in _SECTIONS))


def _subject(run: Run) -> str:
    words = [str(run.setup[key]) for key in ("model", "data") if run.setup.get(key)]
    return " on ".join(words) or run.directory.resolve().name


def _header(run: Run, figures: dict[str, Figure]) -> Markup:
    return element(
        "header",
        element("p", text("Private training report"), class_="kicker"),
        element("h1", text(_subject(run))),
        *(element("p", words, class_="banner", role="note") for words in _banners(run)),
        tiles(list_numbers(run)),
        panels(*map(figures.get, ("quality", "epsilon", "attack"))),
    )


def _banners(run: Run) -> Iterator[Markup]:
    if run.status and not run.status.complete:
        spent = next((m.epsilon for m in reversed(run.measurements) if m.epsilon is not None), None)
        so_far = "" if spent is None else f" ε at the last recorded step: {numbers.format_epsilon(spent)}."
        planned = "" if run.status.steps_planned is None else f" of {run.status.steps_planned:,} planned"
        words = f" {run.status.steps_done:,}{planned} steps are done.{so_far}"
        yield Markup(element("strong", text("This run is unfinished.")) + text(words))
    if run.guarantee and math.isinf(run.guarantee.epsilon):
        words = " ε is infinite, so there is no guarantee: treat the model like its training examples."
        yield Markup(element("strong", text("No privacy.")) + text(words))


def _guarantee(run: Run, _: dict[str, Figure]) -> Markup:
    words = prose.to_markup(run.guarantee.prose) if run.guarantee else NOTHING
    return fold("The guarantee", "what it covers, what it assumes and how it was computed", words)


def _meaning(run: Run, figures: dict[str, Figure]) -> Markup:
    known = run.guarantee.meaning if run.guarantee else None
    if known is None:
        return NOTHING
    rows = (
        ("True minus false positive rate", f"at most {format_percent_up(known.advantage)}", "0 %"),
        (
            "True positive rate at 0.1 % false positives",
            f"at most {format_percent_up(known.found_at_one_in_a_thousand)}",
            "0.1 %",
        ),
        ("True positive rate at 1 % false positives", f"at most {format_percent_up(known.found_at_one_in_a_hundred)}", "1 %"),
        ("Error rate if membership is a fair coin flip", f"at least {format_percent_down(known.bayes_risk)}", "50 %"),
    )
    grid = table(("Membership attack", "Limit", "Guessing"), (tuple(map(text, row)) for row in rows))
    return section("What an attacker can learn", element("div", grid, panels(figures.get("profile")), class_="beside"))


def _test_set(run: Run, _: dict[str, Figure]) -> Markup:
    evaluation, origin = run.evaluation, run.setup.get("test_data")
    if evaluation is None:
        return NOTHING
    source = f", from {origin}" if origin else ""
    summary = element("p", text(f"{evaluation.examples:,} test examples{source}."))
    matrix = _confusion(evaluation, run) if isinstance(evaluation, Evaluation) else NOTHING
    return section("Test set", summary, _estimates(list_estimates(evaluation)), matrix)


def _held_out(run: Run, _: dict[str, Figure]) -> Markup:
    found = run.held_out
    if found is None:
        return NOTHING
    level = f"ε = {numbers.format_epsilon(found.epsilon)} and δ = {numbers.format_power_of_ten(found.delta)}"
    words = (
        f"{found.examples:,} private {found.unit}s that no step used. The numbers were released with noise, at "
        f"{level.replace(' = ', _EQUALS)}, which the guarantee includes; the intervals include the noise."
    )
    return section("Held-out private data", element("p", text(words)), _estimates(list_released(found)))


def _estimates(found: Sequence[Estimate]) -> Markup:
    rows = (tuple(map(text, (one.name, one.shown, one.interval_shown, one.definition))) for one in found)
    return table(("Metric", "Value", "95 % interval", "Definition"), rows, class_="estimates")


def _confusion(evaluation: Evaluation, run: Run) -> Markup:
    classes = len(evaluation.confusion)
    if classes > confusion.LARGEST:
        return element("p", text(f"The confusion matrix has {classes:,} classes, too many to show; see evaluation.json."))
    legend = element("p", text("Rows are true classes, columns are predicted classes."), class_="note")
    return join(
        (element("h3", text("Confusion matrix")), legend, confusion.to_markup(evaluation.confusion, _name_classes(run, classes)))
    )


def _name_classes(run: Run, classes: int) -> list[str]:
    """Return the public names of the classes, from the schema or the settings; numbers if there are none."""
    declared = run.planned("schema", "task", "classes")
    known = declared if isinstance(declared, list) else str(run.setup.get("classes") or "").split(",")
    return list(map(str, known)) if len(known) == classes else list(map(str, range(classes)))


def _calibration(_: Run, figures: dict[str, Figure]) -> Markup:
    return section("Calibration", panels(*map(figures.get, ("calibration", "confidence", "true-class"))))


def _communication(run: Run, figures: dict[str, Figure]) -> Markup:
    if not run.communication:
        return NOTHING
    cohort, rounds = run.communication["cohort"], run.communication["rounds"]
    words = (
        f"Bytes of messages, without the headers of a transport, for the expected {numbers.format_value(cohort)} clients in each "
        f"of {rounds:,} rounds. How many answered is private, and not counted."
    )
    named = {"client": "A client in a round", "round": "A round", "epoch": "An epoch", "run": "The run"}
    columns = {"up": "Sent by clients", "dense_up": "Dense", "down": "Received by clients", "dense_down": "Dense"}
    rows = (
        tuple(map(text, (name, *(numbers.format_bytes(run.communication[part][column]) for column in columns))))
        for part, name in named.items()
    )
    grid = table(("Bytes of", *columns.values()), rows)
    drawn = element("div", panels(figures.get("communication")), grid, class_="beside") if "communication" in figures else grid
    return section("Communication", element("p", text(words)), drawn)


def _accountants(run: Run, figures: dict[str, Figure]) -> Markup:
    if not run.guarantee or not run.guarantee.epsilon_by_accountant:
        return NOTHING
    claims = [(accountants.describe(key), value) for key, value in run.guarantee.epsilon_by_accountant.items()]
    rows = (
        (
            Markup(text(known.name) + element("span", text(f" {known.full_name}"), class_="note")),
            text(known.show(value)),
            Markup(text(known.direction) + (NOTHING if known.is_bound else element("span", text(known.meaning), class_="note"))),
        )
        for known, value in claims
    )
    grid = table(("Accountant", "ε", "Relation to the true ε"), rows, class_="accountants")
    return section("ε by accountant", element("div", panels(figures.get("accountants")), grid, class_="beside"))


def _settings(run: Run, _: dict[str, Figure]) -> Markup:
    defaults = setting_rows.list_defaults(run.setup)
    plan = {key: value for key, value in run.plan.items() if key != "schema"}
    setup = {key: value for key, value in run.setup.items() if key != "defaults"}
    parts = [
        part
        for title, values in (("Plan", plan), ("Training", setup))
        if values
        for part in (element("h3", text(title)), _rows(values, defaults))
    ]
    if run.schema:
        schema = element("pre", element("code", text(run.schema.strip())))
        parts += (element("h3", text("Schema of the table")), element("div", schema, class_="scroll"))
    return fold("Settings", "the plan and the training; what is off is left out", *parts)


def _rows(values: Mapping[str, Any], defaults: Container[str]) -> Markup:
    return table((), ((text(name), text(value)) for name, value in setting_rows.flatten(values, defaults)), class_="settings")


def _releases(run: Run, _: dict[str, Figure]) -> Markup:
    rows = ((text(release.what), _files(release), _status(release), text(release.why)) for release in list_releases(run))
    return fold(
        "What may be shared",
        "the files of this run, and which of them the guarantee covers",
        table(("Output", "Files", "Status", "Reason"), rows, class_="releases"),
    )


def _files(release: Release) -> Markup:
    return join((element("code", text(name)) for name in release.files), separator=", ")


def _status(release: Release) -> Markup:
    return element("span", text(release.status.value), class_=f"status {release.status.name.lower()}")


_SECTIONS: tuple[Section, ...] = (
    _header,
    _meaning,
    _test_set,
    _held_out,
    _calibration,
    _communication,
    _accountants,
    _guarantee,
    _settings,
    _releases,
)
