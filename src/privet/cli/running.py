"""The course of a command that trains: where it writes, what is refused before any work, the run, and its output.

The output is the forecast before the run; a summary, the full statement, one line or JSON after it.
"""

from __future__ import annotations

import errno
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
from privet.accounting.rounding import format_up
from privet.budget import Budget
from privet.cli.options import RunOptions, require
from privet.cli.output import RunInterruptedError, answer
from privet.data import DataSet
from privet.distributed.launch import refuse_together
from privet.distributed.world import ALONE, World
from privet.errors import InvalidArgumentError, LedgerError
from privet.plan import Plan
from privet.runs.run import Outcome, state
from privet.runs.summary import format_full, format_summary, list_results
from privet.tracking.services import make_sink, open_sinks
from privet.training.directory import check_empty
from privet.tuning.feasibility import Feasibility

_Setup = TypeVar("_Setup", bound=runs.Setup)
NO_GOAL = "Set a budget (--epsilon 3) or the noise (--noise-multiplier 1.1)."


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
        fix = f"It holds a run: resume it with privet {verb} --resume {out}, or choose another directory."
        raise InvalidArgumentError("--out", str(out), "a new or empty directory", fix) from None
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


def resume_run(given: RunOptions, directory: Path, kind: type[runs.Setup], world: World = ALONE) -> None:
    """Resume the run of this kind in a directory and print its results."""
    with resumable(directory, kind.command), open_sinks(_sinks(given, world), directory, argument="--log") as sinks:
        outcome = runs.resume(directory, adopt=given.adopt, progress=not given.quiet, callbacks=sinks, kind=kind, world=world)
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


def make_setup(given: Any, kind: type[_Setup], **chosen: Any) -> _Setup:
    """Return the settings of a run: the options of the same names, but for those that were chosen."""
    return kind(**{each.name: getattr(given, each.name) for each in fields(kind) if hasattr(given, each.name)} | chosen)


def start_run(given: RunOptions, setup: runs.Setup, plan: Plan, dataset: DataSet, world: World = ALONE) -> None:
    """Start a run, by default in a new directory in runs/ named after data, model and time, and print its results."""
    with refuse_together(world):
        budget = None if given.budget_file is None else Budget(given.budget_file, given.budget_part)
    name = re.sub(r"[^\w.-]+", "-", Path(setup.data).name)
    directory = given.out or Path("runs") / f"{name}-{setup.model}-{datetime.now():%Y%m%d-%H%M%S}"
    shown: dict[str, Any] = {"steps": plan.total_steps, "delta": plan.delta, "noise_multiplier": plan.noise_multiplier}
    shown |= {name: getattr(setup, name) for name in ("model", "optimizer", "learning_rate")}
    shown |= {"sampling": str(plan.sampling), "clipping": str(plan.clipping)}
    with resumable(directory, setup.command), open_sinks(_sinks(given, world), directory, shown, "--log") as sinks:
        outcome = runs.start(
            setup, plan, dataset, directory,
            budget=budget, progress=not given.quiet, callbacks=sinks, announce=partial(announce, given, dataset),
            world=world,
        )  # fmt: skip
    print_outcome(outcome, given)


def _sinks(given: RunOptions, world: World) -> Iterable[str]:
    return (given.log or ()) if world.first else ()


def announce(given: Any, dataset: DataSet, forecast: Feasibility) -> None:
    """Print at most five lines on standard error before the first step: the plan, and what is unlikely to work."""
    lines = [] if given.quiet else [f"Plan: {forecast}"]
    for line in (*lines, *(f"Warning: {text}" for text in forecast.warnings), *list_checks(given, dataset)):
        print(line, file=sys.stderr)


def list_checks(given: Any, dataset: DataSet) -> list[str]:
    """Return the line on cells that do not fit, which is there for every table: whether there are any is private."""
    if dataset.schema is None:
        return []
    check = f"privet schema check {shlex.quote(str(given.data))} --schema {shlex.quote(given.schema or 'SCHEMA.toml')}"
    return [f"Rows whose target does not fit the schema contribute nothing. Count what does not fit: {check}"]


def print_outcome(outcome: Outcome | None, given: RunOptions) -> None:
    """Print the results of a finished run: as JSON, or in the form that was asked for; nothing on ranks other than 0."""
    if outcome is None:
        return
    quiet = f"{outcome.directory}  ε = {format_up(outcome.guarantee.epsilon)}"
    prose = format_full(outcome) if given.full else quiet if given.quiet else format_summary(outcome)
    answer(given.json, list_results(outcome), prose)
