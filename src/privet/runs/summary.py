"""What a command prints of a finished run: a summary of at most ten lines, the full statement, or numbers for JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from privet.accounting.guarantee.statement import Guarantee
from privet.accounting.rounding import format_percent_up, format_up
from privet.evaluation import Evaluation, HeldOutEstimate, RegressionEvaluation
from privet.evaluation.bins import to_plain
from privet.federated import Communication
from privet.report.headline import describe_classes, headline, list_estimates, list_recalls, list_released, warn_of_majority
from privet.report.numbers import format_bytes
from privet.runs.run import Outcome

_MOST_LINES = 10
_UNTESTED = (
    "No test result: no public test data was given (--test FILE). For a result on private data with its own noise and ε: "
    "--holdout 0.2 --evaluation-epsilon 0.1"
)
_UNTESTED_CLIENTS = "No test result: no public test data was given (--test FILE)."
# Metrics in the JSON output, each as test_…; those of the other task are null.
_MEASURED = (
    "accuracy", "negative_log_likelihood", "brier", "expected_calibration_error", "root_mean_square_calibration_error",
    "maximum_calibration_error", "majority_share", "auroc", "balanced_accuracy", "root_mean_squared_error", "mean_absolute_error",
    "r_squared",
)  # fmt: skip


def list_results(outcome: Outcome) -> dict[str, Any]:
    """Return the results of a finished run for the JSON output."""
    guarantee, evaluation, held_out = outcome.guarantee, outcome.evaluation, outcome.held_out
    values: dict[str, Any] = {
        "epsilon": guarantee.epsilon,
        "delta": guarantee.delta,
        **list_measured(evaluation),
        "test_data": outcome.test_data,
        "test_intervals": evaluation and to_plain(evaluation.intervals),
        "steps": guarantee.steps,
        "seconds": round(outcome.seconds, 2),
        "directory": str(outcome.directory),
    }
    if held_out is not None:
        released = {**held_out.metrics, "intervals": to_plain(held_out.intervals)}
        released |= {"examples": held_out.examples, "epsilon": held_out.epsilon}
        values |= {f"holdout_{name}": value for name, value in released.items()}
    if outcome.communication is not None:
        values["communication"] = outcome.communication.to_dict()
    return values


def list_measured(evaluation: Evaluation | RegressionEvaluation | None) -> dict[str, Any]:
    """Return the results on test data for the JSON output."""
    measured = {f"test_{name}": to_plain(getattr(evaluation, name, None)) for name in _MEASURED}
    recalls = dict(zip(evaluation.names, evaluation.recalls, strict=True)) if isinstance(evaluation, Evaluation) else None
    return {**measured, "test_recalls": recalls, "test_examples": evaluation and evaluation.examples}


def list_lines(evaluation: Evaluation | RegressionEvaluation | None, *, warned: bool = False) -> Iterator[str]:
    """Yield the main result on test data, if any, for classes what it hides and, if asked for, the warning about it."""
    if evaluation is None:
        return
    shown = headline(evaluation)
    yield f"{shown.name} {shown.with_interval} on {evaluation.examples:,} public test examples (95\u00a0% interval)"
    if told := describe_classes(evaluation):
        yield f"{told[:1].upper()}{told[1:]}"
    yield from (f"Warning: {text}" for text in warn_of_majority(evaluation) if warned)


def format_summary(outcome: Outcome) -> str:
    """Return at most ten lines: guarantee, attack bounds, accuracy, classes, warnings, and where report and statement are."""
    results = [*_guarantee_lines(outcome.guarantee), *_result_lines(outcome)]
    if outcome.defaults:
        shown = (f"{name.replace('_', ' ')} {_format_setting(value)}" for name, value in outcome.defaults.items())
        results.append(f"Chosen by default: {', '.join(shown)}")
    report = f"Report: {(outcome.directory / 'report.html').resolve().as_uri()}"
    warnings = outcome.guarantee.warnings
    room = _MOST_LINES - len(results) - 2
    told = [f"Warning: {text}" for text in (warnings if len(warnings) <= room else warnings[: room - 1])]
    if more := len(warnings) - len(told):
        told.append(f"Warning: {more} {'more ' if told else ''}in the full statement")
    return "\n".join([*results, *told, report, f"Full statement: privet guarantee {outcome.directory}"])


def _format_setting(value: str | float) -> str:
    return value if isinstance(value, str) else format(value, ",.3g" if value < 1000 else ",.0f")


def format_full(outcome: Outcome) -> str:
    """Return the full statement and every number of the evaluation."""
    lines = [*_result_lines(outcome)]
    if outcome.evaluation is not None:  # all of its numbers, below a line that names the test data
        found = [*list_estimates(outcome.evaluation), *list_recalls(outcome.evaluation)]
        width = max(len(estimate.name) for estimate in found) + 1
        origin = f" ({outcome.test_data})" if outcome.test_data else ""
        table = [f"On the {outcome.evaluation.examples:,} test examples{origin}, with 95\u00a0% intervals:"]
        table += [f"  {estimate.name:{width}} {estimate.with_interval}" for estimate in found]
        lines[: len(list(list_lines(outcome.evaluation)))] = table
    measured = "\n".join(lines)
    where = (outcome.directory / "report.html").resolve().as_uri()
    return f"{outcome.guarantee}\n\n{measured}\n\nTraining took {outcome.seconds:.0f} s. Report: {where}"


def _guarantee_lines(guarantee: Guarantee) -> Iterator[str]:
    if math.isinf(guarantee.epsilon):
        yield "NO PRIVACY (ε = ∞): " + ("; ".join(guarantee.reasons) or "the released values have no privacy bound") + "."
        return
    meaning = guarantee.meaning
    yield f"ε = {format_up(guarantee.epsilon)}, δ = {guarantee.delta:g} for {guarantee.unit} ({guarantee.adjacency} neighbours)"
    found, gain = format_percent_up(meaning.found_at_one_in_a_hundred), format_percent_up(meaning.advantage)
    yield (
        f"No membership attack finds more than {found} of the members at 1\u00a0% false positives; "
        f"its advantage (TPR − FPR) is at most {gain}."
    )


def _result_lines(outcome: Outcome) -> Iterator[str]:
    evaluation, held_out = outcome.evaluation, outcome.held_out
    yield from list_lines(evaluation)
    if held_out is not None:
        yield _format_held_out(held_out)
    if evaluation is None and held_out is None:
        yield _UNTESTED if outcome.communication is None else _UNTESTED_CLIENTS
    if outcome.communication is not None:
        yield _format_communication(outcome.communication)


def _format_communication(found: Communication) -> str:
    one, whole = found.client, found.run
    sparse = f" ({100 * one.up / one.dense_up:.3g}\u00a0% of dense)" if one.up < one.dense_up else ""
    return (
        f"Communication: {format_bytes(one.up)}{sparse} up and {format_bytes(one.down)} down for a client in a round; "
        f"{format_bytes(whole.up)} and {format_bytes(whole.down)} in all, for {found.cohort:,.4g} clients a round"
    )


def _format_held_out(found: HeldOutEstimate) -> str:
    shown = ", ".join(f"{one.name} {one.with_interval}" for one in list_released(found))
    return (
        f"{shown} on {found.examples:,} held-out private {found.unit}s (95\u00a0% interval with noise; "
        f"ε = {format_up(found.epsilon)} for this release)"
    )
