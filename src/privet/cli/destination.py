"""Where a command writes: the check of a file or of a run's directory before any work, and how an interrupted run goes on."""

from __future__ import annotations

__all__ = ["check_destination", "check_run_directory", "new_run_directory", "resumable"]

import errno
import os
import re
import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from privet.cli.refusals import RunInterruptedError
from privet.errors import InvalidArgumentError, LedgerError
from privet.training.directory import check_empty


def check_destination(path: Path, endings: Iterable[str], *, force: bool, source: Path | None = None) -> None:
    """Check that `--out` names a file that may be written.

    Args:
        path: the file.
        endings: allowed endings of its name; none for any.
        force: replace a file that exists.
        source: the file that the command reads, which it never replaces.

    Raises:
        InvalidArgumentError: it is a folder, has another ending, or exists and `force` is not set.
    """
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
    """Refuse a directory that holds a run or other files, or cannot be created, before any work.

    Args:
        out: the directory.
        verb: the command that resumes a run in it.

    Raises:
        InvalidArgumentError: names the directory.
    """
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
    """Name the run in the error that follows Ctrl-C or a full disk, once it has begun.

    Args:
        directory: of the run.
        verb: the command that resumes it.
    """
    try:
        yield
    except KeyboardInterrupt:
        if not (directory / "plan.json").exists():
            raise
        raise RunInterruptedError(directory, verb) from None
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        from privet.runs.run import state  # with all of training and reports, which other commands do not need

        rest = "privet report" if state(directory) == "complete" else f"privet {verb} --resume"
        raise LedgerError(
            f"{error.filename or directory}: {error.strerror}. Free some space, then: {rest} {shlex.quote(str(directory))}"
        ) from None
