"""Assemble the report page of one run."""

from __future__ import annotations

__all__ = ["Section", "render_page"]

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from privet.accounting.rounding import format_percent_down, format_percent_up
from privet.evaluation import wilson_interval
from privet.report import confusion, numbers, prose, setting_rows
from privet.report.figures import accountants, gradient_study, reliability
from privet.report.figures.svg import Figure
from privet.report.markup import NOTHING, Markup, element, join, table, text
from privet.report.releases import Release, list_releases
from privet.report.run_files import Run
from privet.report.sections import document, figure, section

_NEIGHBOURS = {
    "add-remove": "added or removed",
    "replace-one": "replaced",
    "zero-out": "blanked out",
}

_METRIC_HEAD = ("Metric", "Value (95 % bootstrap interval)", "Definition")

Section = Callable[[Run, dict[str, Figure]], Markup]


def render_page(run: Run, figures: tuple[Figure, ...]) -> str:
    """Return the report as one HTML document without external resources.

    Args:
        run: contents of a run directory.
        figures: its rendered figures; each section takes the one that it shows.
    """
    named = {figure.name: figure for figure in figures}
    return document(f"{_subject(run)}: Privet report", join(part(run, named) for part in _SECTIONS))


def _subject(run: Run) -> str:
    words = [str(run.setup[key]) for key in ("model", "data") if run.setup.get(key)]
    return " on ".join(words) or run.directory.resolve().name


def _header(run: Run, _: dict[str, Figure]) -> Markup:
    tiles = element("dl", *_tiles(run), class_="tiles")
    return element(
        "header",
        element("h1", text("Private training report")),
        element("p", text(_subject(run)), class_="subtitle"),
        *(element("p", words, class_="banner", role="note") for words in _banners(run)),
        tiles if any(_tiles(run)) else NOTHING,
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


def _tiles(run: Run) -> Iterator[Markup]:
    if run.guarantee:
        differs = _NEIGHBOURS.get(run.guarantee.adjacency, run.guarantee.adjacency)
        yield _tile("ε", numbers.format_epsilon(run.guarantee.epsilon), differs and f"for {run.guarantee.unit} {differs}")
        yield _tile("δ", numbers.format_power_of_ten(run.guarantee.delta), "probability mass that ε does not cover")
    if run.evaluation:
        low, high = wilson_interval(run.evaluation.accuracy, run.evaluation.examples)
        interval = f"95 % Wilson interval {100 * low:.2f} to {numbers.format_percent(high)}, {run.evaluation.examples:,} examples"
        yield _tile("Test accuracy", numbers.format_percent(run.evaluation.accuracy), interval)
    else:
        measured = [m for m in run.measurements if m.test_accuracy is not None]
        for m in measured[-1:]:
            yield _tile("Test accuracy", numbers.format_percent(m.test_accuracy or 0.0), f"after step {m.step:,}")


def _tile(name: str, value: str, about: str) -> Markup:
    return element(
        "div",
        element("dt", text(name)),
        element("dd", text(value), class_="value"),
        element("dd", text(about), class_="about") if about else NOTHING,
        class_="tile",
    )


def _guarantee(run: Run, _: dict[str, Figure]) -> Markup:
    return section("The guarantee", prose.to_markup(run.guarantee.prose) if run.guarantee else NOTHING)


def _meaning(run: Run, figures: dict[str, Figure]) -> Markup:
    known = run.guarantee.meaning if run.guarantee else None
    if known is None:
        return NOTHING
    rows = (
        ("Advantage", format_percent_up(known.advantage), "at most; true positive rate minus false positive rate"),
        (
            "True positive rate at 0.1 % false positives",
            format_percent_up(known.found_at_one_in_a_thousand),
            "at most; random guessing: 0.1 %",
        ),
        (
            "True positive rate at 1 % false positives",
            format_percent_up(known.found_at_one_in_a_hundred),
            "at most; random guessing: 1 %",
        ),
        (
            "Error rate if membership is a fair coin flip",
            format_percent_down(known.bayes_risk),
            "at least; random guessing: 50 %",
        ),
    )
    grid = table(("Membership attack", "Limit", "Meaning"), (tuple(map(text, row)) for row in rows))
    return section("What an attacker can learn", figure(figures.get("meaning")), grid)


def _progress(_: Run, figures: dict[str, Figure]) -> Markup:
    return section("Training", figure(figures.get("progress")))


def _accountants(run: Run, figures: dict[str, Figure]) -> Markup:
    if not run.guarantee or not run.guarantee.epsilon_by_accountant:
        return NOTHING
    claims = [(accountants.describe(key), value) for key, value in run.guarantee.epsilon_by_accountant.items()]
    rows = (
        (
            Markup(text(known.name) + element("span", text(f" {known.full_name}"), class_="note")),
            text(known.show(value)),
            text(known.direction),
            text(known.meaning),
        )
        for known, value in claims
    )
    grid = table(("Accountant", "ε", "Direction of error", "Meaning"), rows, class_="accountants")
    return section("ε by accountant", figure(figures.get("accountants")), grid)


def _confusion(run: Run, _: dict[str, Figure]) -> Markup:
    origin = run.setup.get("test_data")
    if not run.evaluation:
        # An incomplete run has no such key: it has not recorded yet whether it has test data.
        untested = element("p", text("There is no test accuracy because no public test data was provided."))
        return section("Test set", untested) if "test_data" in run.setup and origin is None else NOTHING
    classes, loss = len(run.evaluation.confusion), run.evaluation.negative_log_likelihood
    source = f", from {origin}" if origin else ""
    summary = f"{run.evaluation.examples:,} test examples{source}; mean negative log-likelihood {loss:.4f} nats."
    if classes > confusion.LARGEST:
        words = f"The confusion matrix has {classes:,} classes, too many to show; see evaluation.json."
        return section("Test set", element("p", text(f"{summary} {words}")))
    legend = "Rows are true classes, columns are predicted classes."
    return section("Test set", element("p", text(f"{summary} {legend}")), confusion.to_markup(run.evaluation.confusion))


def _calibration(run: Run, figures: dict[str, Figure]) -> Markup:
    evaluation = run.evaluation
    if not evaluation or not evaluation.calibration:
        return NOTHING
    rows = ((text(name), text(value), text(about)) for name, value, about in reliability.list_metrics(evaluation))
    return section("Calibration", figure(figures.get(reliability.NAME)), table(_METRIC_HEAD, rows))


def _gradients(run: Run, figures: dict[str, Figure]) -> Markup:
    if not run.observations:
        return NOTHING
    words = element("strong", text(gradient_study.BANNER)) + text(f" {gradient_study.ADVICE}")
    banner = element("p", Markup(words), class_="banner", role="note")
    return section("Gradient study", banner, figure(figures.get(gradient_study.NAME)))


def _plan(run: Run, _: dict[str, Figure]) -> Markup:
    return section("The plan", _settings(run.plan))


def _setup(run: Run, _: dict[str, Figure]) -> Markup:
    return section("Training setup", _settings(run.setup) if run.setup else NOTHING)


def _releases(run: Run, _: dict[str, Figure]) -> Markup:
    rows = ((text(release.what), _files(release), _status(release), text(release.why)) for release in list_releases(run))
    return section(
        "What the guarantee covers",
        table(("Output", "Files", "Status", "Reason"), rows, class_="releases"),
    )


def _files(release: Release) -> Markup:
    return join((element("code", text(name)) for name in release.files), separator=", ") or text("—")


def _status(release: Release) -> Markup:
    return element("span", text(release.status.value), class_=f"status {release.status.name.lower()}")


def _settings(values: Mapping[str, Any]) -> Markup:
    return table((), ((text(name), text(value)) for name, value in setting_rows.flatten(values)), class_="settings")


_SECTIONS: tuple[Section, ...] = (
    _header,
    _guarantee,
    _meaning,
    _progress,
    _accountants,
    _confusion,
    _calibration,
    _gradients,
    _plan,
    _setup,
    _releases,
)
