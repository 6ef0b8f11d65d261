"""What `privet train` says at its end: a few lines, or the whole statement."""

from __future__ import annotations

import math
from collections.abc import Iterator

from privet.accounting.guarantee.statement import Guarantee
from privet.accounting.rounding import format_percent_up, format_up
from privet.evaluation import Evaluation
from privet.report.figures import reliability
from privet.runs.run import Outcome

_MOST_WARNINGS = 3
_UNTESTED = "No test accuracy: no public test data was given (--test FILE names some)."


def summary(outcome: Outcome) -> str:
    """Return at most eight lines: the guarantee, what it leaves an attacker, accuracy, warnings, and where the rest is."""
    return "\n".join([
        *_promise(outcome.guarantee),
        _accuracy(outcome.evaluation),
        *_warnings(outcome.guarantee),
        f"Report: {(outcome.directory / 'report.html').resolve().as_uri()}",
        f"Full statement: privet guarantee {outcome.directory}",
    ])  # fmt: skip


def in_full(outcome: Outcome) -> str:
    """Return the whole statement and every number of the evaluation."""
    measured = _UNTESTED if outcome.evaluation is None else _table(outcome.evaluation, outcome.test_data)
    where = (outcome.directory / "report.html").resolve().as_uri()
    return f"{outcome.guarantee}\n\n{measured}\n\n{outcome.seconds:.0f} s of training. Report: {where}"


def shortest(outcome: Outcome) -> str:
    """Return the directory and ε."""
    return f"{outcome.directory}  ε = {format_up(outcome.guarantee.epsilon)}"


def _promise(guarantee: Guarantee) -> Iterator[str]:
    if math.isinf(guarantee.epsilon):
        yield "NO PRIVACY (ε = ∞): " + ("; ".join(guarantee.reasons) or "nothing bounds what is released") + "."
        return
    meaning = guarantee.meaning
    yield f"ε = {format_up(guarantee.epsilon)}, δ = {guarantee.delta:g} for {guarantee.unit} ({guarantee.adjacency} neighbours)"
    found, gain = format_percent_up(meaning.found_at_one_in_a_hundred), format_percent_up(meaning.advantage)
    yield f"No attack finds more than {found} of the members at 1\u00a0% false alarms, or beats guessing by more than {gain}."


def _accuracy(evaluation: Evaluation | None) -> str:
    if evaluation is None:
        return _UNTESTED
    name, value, _ = next(iter(reliability.rows(evaluation)))
    return f"{name} {value} on {evaluation.examples:,} public test examples (95\u00a0% interval)"


def _warnings(guarantee: Guarantee) -> Iterator[str]:
    for text in guarantee.warnings[:_MOST_WARNINGS]:
        yield f"Warning: {text}"
    if len(guarantee.warnings) > _MOST_WARNINGS:
        yield f"Warning: {len(guarantee.warnings) - _MOST_WARNINGS} more in the full statement"


def _table(evaluation: Evaluation, test_data: str | None) -> str:
    """Return the numbers of the report with their intervals, a line each, and what they were measured on."""
    rows = [(name, value) for name, value, _ in reliability.rows(evaluation)]
    width = max(len(name) for name, _ in rows)
    origin = f" ({test_data})" if test_data else ""
    head = f"On the {evaluation.examples:,} test examples{origin}, with 95\u00a0% bootstrap intervals:"
    return "\n".join((head, *(f"  {name:{width}}  {value}" for name, value in rows)))
