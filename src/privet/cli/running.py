"""The course of a command that trains: where it writes, what is refused before any work, the run, and its output.

The output is the forecast before the run; a summary, the full statement, one line or JSON after it.
"""

from __future__ import annotations

import errno
import math
import os
import re
import shlex
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from privet import runs
from privet.accounting.guarantee.statement import Guarantee
from privet.accounting.rounding import format_percent_up, format_up
from privet.budget import Budget
from privet.cli.options import DataOptions, RunOptions, require
from privet.cli.output import RunInterruptedError, answer
from privet.data import DataSet, load
from privet.errors import InvalidArgumentError, LedgerError
from privet.evaluation import Evaluation, HeldOutEstimate, RegressionEvaluation
from privet.evaluation.bins import to_plain
from privet.federated import Communication
from privet.plan import Plan
from privet.report.headline import headline, list_estimates, list_released
from privet.report.numbers import format_bytes
from privet.runs.run import Outcome, state
from privet.tables import Schema
from privet.tracking.services import make_sink, open_sinks
from privet.training.directory import check_empty
from privet.tuning.feasibility import Feasibility

_Setup = TypeVar("_Setup", bound=runs.Setup)
NO_GOAL = "Set a budget (--epsilon 3) or the noise (--noise-multiplier 1.1)."
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


def check_destination(path: Path, endings: Iterable[str], *, force: bool, source: Path | None = None) -> None:
    """Refuse a file of `--out` with another ending (if there are any), one that exists without `force`, and the source."""
    allowed = tuple(endings)
    if allowed and path.suffix.lower() not in allowed:
        raise InvalidArgumentError("--out", str(path), f"a file that ends in {', '.join(allowed)}")
    if path.is_dir():
        raise InvalidArgumentError("--out", str(path), "a file, not a folder")
    if path.exists() and source is not None and source.exists() and path.samefile(source):
        raise InvalidArgumentError("--out", str(path), "another file than the one that is read")
    if path.exists() and not force:
        raise InvalidArgumentError("--out", str(path), "a new file", "Add --force to replace it.")


def check_run_directory(out: Path, verb: str) -> None:
    """Refuse a directory that holds a run or other files, or cannot be created, before any work."""
    try:
        check_empty(out, "--out")
    except LedgerError:
        raise InvalidArgumentError(
            "--out", str(out), "a new or empty directory",
            f"It holds a run: resume it with privet {verb} --resume {out}, or choose another directory.",
        ) from None  # fmt: skip
    nearest = next(path for path in (out.absolute(), *out.absolute().parents) if path.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        raise InvalidArgumentError("--out", str(out), "a directory that can be created", f"Nothing can be written to {nearest}.")


@contextmanager
def resumable(directory: Path, verb: str) -> Iterator[None]:
    """Name the run, and the verb that resumes it, in the error that follows Ctrl-C or a full disk."""
    try:
        yield
    except KeyboardInterrupt:
        if not (directory / "plan.json").exists():
            raise
        raise RunInterruptedError(directory, verb) from None
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        rest = "privet report" if state(directory) == "complete" else f"privet {verb} --resume"
        raise LedgerError(
            f"{error.filename or directory}: {error.strerror}. Free some space, then: {rest} {shlex.quote(str(directory))}"
        ) from None


def resume_run(given: RunOptions, directory: Path, kind: type[runs.Setup]) -> None:
    """Resume the run of this kind in a directory and print its results."""
    with resumable(directory, kind.command), open_sinks(given.log or (), directory, argument="--log") as sinks:
        outcome = runs.resume(directory, adopt=given.adopt, progress=not given.quiet, callbacks=sinks, kind=kind)
    print_outcome(outcome, given)


def check_before(given: Any, verb: str, example: str, *, noise_known: bool) -> str:
    """Refuse sinks, a directory, missing data or a missing goal before any work; return the name or path of the data."""
    for text in given.log or ():
        make_sink(text, Path(), argument="--log")
    if given.out is not None:
        check_run_directory(given.out, verb)
    require(given, "data", fix=f"Try: privet {verb} {example}.")
    if given.noise_multiplier is None and not noise_known:
        require(given, "epsilon", fix=NO_GOAL)
    return str(given.data)


def load_dataset(given: DataOptions, schema: Schema | None = None) -> DataSet:
    """Return the data that the options describe, with scaled targets; `schema` takes the place of the file's."""
    options = {name: getattr(given, name, None) for name in ("folder", "target", "classes", "test", "user_column")}
    return runs.scale_targets(load(given.data, schema=schema or given.schema, **options))


def make_setup(given: Any, kind: type[_Setup], **chosen: Any) -> _Setup:
    """Return the settings of a run: the options of the same names, but for those that were chosen."""
    return kind(**{each.name: getattr(given, each.name) for each in fields(kind) if hasattr(given, each.name)} | chosen)


def start_run(given: RunOptions, setup: runs.Setup, plan: Plan, dataset: DataSet) -> None:
    """Start a run, by default in a new directory in runs/ named after data, model and time, and print its results."""
    budget = None if given.budget_file is None else Budget(given.budget_file, given.budget_part)
    name = re.sub(r"[^\w.-]+", "-", Path(setup.data).name)
    directory = given.out or Path("runs") / f"{name}-{setup.model}-{datetime.now():%Y%m%d-%H%M%S}"
    shown: dict[str, Any] = {"steps": plan.total_steps, "delta": plan.delta, "noise_multiplier": plan.noise_multiplier}
    shown |= {name: getattr(setup, name) for name in ("model", "optimizer", "learning_rate")}
    shown |= {"sampling": str(plan.sampling), "clipping": str(plan.clipping)}
    with resumable(directory, setup.command), open_sinks(given.log or (), directory, shown, "--log") as sinks:
        outcome = runs.start(
            setup, plan, dataset, directory,
            budget=budget, progress=not given.quiet, callbacks=sinks, announce=partial(announce, quiet=given.quiet),
        )  # fmt: skip
    print_outcome(outcome, given)


def announce(forecast: Feasibility, *, quiet: bool) -> None:
    """Print at most four lines on standard error before the first step: the plan, and what is unlikely to work."""
    lines = [] if quiet else [f"Plan: {forecast}"]
    for line in (*lines, *(f"Warning: {text}" for text in forecast.warnings)):
        print(line, file=sys.stderr)


def print_outcome(outcome: Outcome, given: RunOptions) -> None:
    """Print the results of a finished run: as JSON, or in the form that was asked for."""
    guarantee, evaluation, held_out = outcome.guarantee, outcome.evaluation, outcome.held_out
    quiet = f"{outcome.directory}  ε = {format_up(guarantee.epsilon)}"
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
    answer(given.json, values, format_full(outcome) if given.full else quiet if given.quiet else format_summary(outcome))


def list_measured(evaluation: Evaluation | RegressionEvaluation | None) -> dict[str, Any]:
    """Return the results on test data for the JSON output."""
    measured = {f"test_{name}": to_plain(getattr(evaluation, name, None)) for name in _MEASURED}
    return {**measured, "test_examples": evaluation and evaluation.examples}


def format_measured(evaluation: Evaluation | RegressionEvaluation) -> str:
    """Return the main result on test data in one line."""
    shown = headline(evaluation)
    return f"{shown.name} {shown.with_interval} on {evaluation.examples:,} public test examples (95\u00a0% interval)"


def format_summary(outcome: Outcome) -> str:
    """Return at most eight lines: guarantee, attack bounds, accuracy, warnings, and where report and statement are."""
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
        found = list_estimates(outcome.evaluation)
        width = max(len(estimate.name) for estimate in found) + 1
        origin = f" ({outcome.test_data})" if outcome.test_data else ""
        table = [f"On the {outcome.evaluation.examples:,} test examples{origin}, with 95\u00a0% intervals:"]
        table += [f"  {estimate.name:{width}} {estimate.with_interval}" for estimate in found]
        lines[:1] = table
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
    if evaluation is not None:
        yield format_measured(evaluation)
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
