"""Output of a training: the forecast before it; a summary, the full statement, one line or JSON after it."""

from __future__ import annotations

__all__ = ["announce", "format_full", "format_summary", "print_outcome", "shown_settings"]

import math
import sys
from collections.abc import Iterator

from privet.accounting.guarantee.statement import Guarantee
from privet.accounting.rounding import format_percent_up, format_up
from privet.cli.options import RunOptions
from privet.cli.output import answer
from privet.evaluation import Evaluation, HeldOutEstimate, RegressionEvaluation
from privet.evaluation.bins import to_plain
from privet.federated import Communication
from privet.plan import Plan
from privet.report.headline import headline, list_estimates, list_released
from privet.report.numbers import format_bytes
from privet.runs.config import Setup
from privet.runs.run import Outcome
from privet.tuning.feasibility import Feasibility

_MOST_LINES = 8
_UNTESTED = (
    "No test result: no public test data was given (--test FILE). For a result on private data with its own noise and ε: "
    "--holdout 0.2 --evaluation-epsilon 0.1"
)
_UNTESTED_CLIENTS = "No test result: no public test data was given (--test FILE)."
# Metrics in the JSON output, each as test_…; those of the other task are null.
_MEASURED = (
    "accuracy", "negative_log_likelihood", "brier", "expected_calibration_error", "root_mean_square_calibration_error",
    "maximum_calibration_error", "balanced_accuracy", "root_mean_squared_error", "mean_absolute_error", "r_squared",
)  # fmt: skip


def announce(forecast: Feasibility, *, quiet: bool) -> None:
    """Print at most four lines on standard error before the first step: the plan, and what is unlikely to work."""
    lines = [] if quiet else [f"Plan: {forecast}"]
    for line in (*lines, *(f"Warning: {text}" for text in forecast.warnings)):
        print(line, file=sys.stderr)


def print_outcome(outcome: Outcome, given: RunOptions) -> None:
    """Print the results of a finished run: as JSON, or in the form that was asked for."""
    guarantee, evaluation, held_out = outcome.guarantee, outcome.evaluation, outcome.held_out
    quiet = f"{outcome.directory}  ε = {format_up(guarantee.epsilon)}"
    answer(
        given.json,
        {
            "epsilon": guarantee.epsilon,
            "delta": guarantee.delta,
            **{f"test_{name}": to_plain(getattr(evaluation, name, None)) for name in _MEASURED},
            "test_examples": evaluation and evaluation.examples,
            "test_data": outcome.test_data,
            "test_intervals": evaluation and to_plain(evaluation.intervals),
            **({} if held_out is None else {f"holdout_{name}": value for name, value in held_out.metrics.items()}),
            **(
                {}
                if held_out is None
                else {
                    "holdout_intervals": to_plain(held_out.intervals),
                    "holdout_examples": held_out.examples,
                    "holdout_epsilon": held_out.epsilon,
                }
            ),
            **({} if outcome.communication is None else {"communication": outcome.communication.to_dict()}),
            "steps": guarantee.steps,
            "seconds": round(outcome.seconds, 2),
            "directory": str(outcome.directory),
        },
        format_full(outcome) if given.full else quiet if given.quiet else format_summary(outcome),
    )


def format_summary(outcome: Outcome) -> str:
    """Return at most eight lines: guarantee, attack bounds, accuracy, warnings, and where report and statement are."""
    results = [*_guarantee_lines(outcome.guarantee), *_result_lines(outcome), *_default_lines(outcome)]
    places = [
        f"Report: {(outcome.directory / 'report.html').resolve().as_uri()}",
        f"Full statement: privet guarantee {outcome.directory}",
    ]
    return "\n".join([*results, *_warning_lines(outcome.guarantee, _MOST_LINES - len(results) - len(places)), *places])


def format_full(outcome: Outcome) -> str:
    """Return the full statement and every number of the evaluation."""
    measured = "\n".join(_result_lines(outcome))
    if outcome.evaluation is not None:
        held_out = () if outcome.held_out is None else (_format_held_out(outcome.held_out),)
        measured = "\n".join((_format_table(outcome.evaluation, outcome.test_data), *held_out))
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
    if evaluation is not None:
        shown = headline(evaluation)
        yield f"{shown.name} {shown.with_interval} on {evaluation.examples:,} public test examples (95\u00a0% interval)"
    if held_out is not None:
        yield _format_held_out(held_out)
    if evaluation is None and held_out is None:
        yield _UNTESTED if outcome.communication is None else _UNTESTED_CLIENTS
    if outcome.communication is not None:
        yield _format_communication(outcome.communication)


def _default_lines(outcome: Outcome) -> Iterator[str]:
    """Yield the settings that were not given, with the words of their options."""

    def shown(value: str | float) -> str:
        return value if isinstance(value, str) else format(value, ",.3g" if value < 1000 else ",.0f")

    if words := [f"{name.replace('_', ' ')} {shown(value)}" for name, value in outcome.defaults.items()]:
        yield f"Chosen by default: {', '.join(words)}"


def _format_communication(found: Communication) -> str:
    """Return the expected bytes of a client in a round and of the run, in one line."""
    one, whole = found.client, found.run
    sparse = f" ({100 * one.up / one.dense_up:.3g}\u00a0% of dense)" if one.up < one.dense_up else ""
    return (
        f"Communication: {format_bytes(one.up)}{sparse} up and {format_bytes(one.down)} down for a client in a round; "
        f"{format_bytes(whole.up)} and {format_bytes(whole.down)} in all, for {found.cohort:,.4g} clients a round"
    )


def _format_held_out(found: HeldOutEstimate) -> str:
    """Return the released result on held-out data in one line."""
    shown = ", ".join(f"{one.name} {one.with_interval}" for one in list_released(found))
    return (
        f"{shown} on {found.examples:,} held-out private {found.unit}s (95\u00a0% interval with noise; "
        f"ε = {format_up(found.epsilon)} for this release)"
    )


def _warning_lines(guarantee: Guarantee, room: int) -> Iterator[str]:
    """Yield at most `room` lines, of which the last counts the warnings that do not fit."""
    shown = guarantee.warnings if len(guarantee.warnings) <= room else guarantee.warnings[: room - 1]
    for text in shown:
        yield f"Warning: {text}"
    if more := len(guarantee.warnings) - len(shown):
        yield f"Warning: {more} {'more ' if shown else ''}in the full statement"


def _format_table(evaluation: Evaluation | RegressionEvaluation, test_data: str | None) -> str:
    """Return the numbers of the report with their intervals, one per line, below a line that names the test data."""
    found = list_estimates(evaluation)
    width = max(len(estimate.name) for estimate in found) + 1
    origin = f" ({test_data})" if test_data else ""
    head = f"On the {evaluation.examples:,} test examples{origin}, with 95\u00a0% intervals:"
    return "\n".join((head, *(f"  {estimate.name:{width}} {estimate.with_interval}" for estimate in found)))


def shown_settings(setup: Setup, plan: Plan) -> dict[str, str | float]:
    """Return the public settings that metrics sinks show beside the values of a run."""
    return {
        "model": setup.model,
        "optimizer": setup.optimizer,
        "learning_rate": setup.learning_rate,
        "steps": plan.total_steps,
        "delta": plan.delta,
        "noise_multiplier": plan.noise_multiplier,
        "sampling": str(plan.sampling),
        "clipping": str(plan.clipping),
    }
