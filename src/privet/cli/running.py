"""The course of a command that trains: where it writes, what is refused before any work, the run, and its results."""

from __future__ import annotations

__all__ = ["check_before", "check_destination", "load_dataset", "make_setup", "resume_run", "start_run"]

import errno
import os
import re
import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from privet import runs
from privet.budget import Budget
from privet.cli.options import BudgetOptions, DataOptions, RunOptions
from privet.cli.output import RunInterruptedError
from privet.cli.summary import announce, print_outcome, shown_settings
from privet.data import DataSet, load
from privet.errors import InvalidArgumentError, LedgerError
from privet.plan import Plan
from privet.runs.run import state
from privet.tables import Schema
from privet.tracking.services import make_sink, open_sinks
from privet.training.directory import check_empty

_Setup = TypeVar("_Setup", bound=runs.Setup)


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


def new_run_directory(data: str, model: str) -> Path:
    """Return the path of a new directory in runs/, named after data, model and time."""
    name = re.sub(r"[^\w.-]+", "-", Path(data).name)
    return Path("runs") / f"{name}-{model}-{datetime.now():%Y%m%d-%H%M%S}"


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


def check_before(given: RunOptions, data: str | None, verb: str, example: str) -> str:
    """Refuse sinks, a directory or missing data before any work; return the name or path of the data."""
    for text in given.log or ():
        make_sink(text, Path(), argument="--log")
    if given.out is not None:
        check_run_directory(given.out, verb)
    if data is None:
        raise InvalidArgumentError("--data", None, "given", f"Try: privet {verb} {example}.")
    return data


def load_dataset(given: DataOptions, schema: Schema | None = None) -> DataSet:
    """Return the data that the options describe, with scaled targets; `schema` takes the place of the file's."""
    assert given.data is not None
    names = ("target", "classes", "test", "user_column")
    options = {name: value for name in names if (value := getattr(given, name, None)) is not None}
    described = schema or (None if given.schema is None else Schema.read(given.schema))
    return runs.scale_targets(load(given.data, folder=place(given), schema=described, **options))


def place(given: Any) -> str | None:
    """Return the folder of the data, if the command has this option and it is given."""
    folder = getattr(given, "folder", None)
    return None if folder is None else str(folder)


def make_setup(given: Any, kind: type[_Setup], **chosen: Any) -> _Setup:
    """Return the settings of a run: the options of the same names, but for those that were chosen."""
    named = {each.name: getattr(given, each.name) for each in fields(kind) if hasattr(given, each.name)}
    return kind(**named | {"folder": place(given)} | chosen)


def start_run(given: Any, setup: runs.Setup, plan: Plan, dataset: DataSet) -> None:
    """Start a run and print its results."""
    assert isinstance(given, RunOptions)
    assert isinstance(given, BudgetOptions)
    budget = None if given.budget_file is None else Budget(given.budget_file, given.budget_part)
    directory, shown = given.out or new_run_directory(setup.data, setup.model), shown_settings(setup, plan)
    with resumable(directory, setup.command), open_sinks(given.log or (), directory, shown, "--log") as sinks:
        outcome = runs.start(
            setup, plan, dataset, directory,
            budget=budget, progress=not given.quiet, callbacks=sinks, announce=partial(announce, quiet=given.quiet),
        )  # fmt: skip
    print_outcome(outcome, given)
