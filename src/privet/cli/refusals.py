"""Refusals in the words of the command line: options in place of Python's arguments, commands in place of calls."""

from __future__ import annotations

__all__ = ["RunInterruptedError", "in_options"]

import re
import shlex
from collections.abc import Collection
from pathlib import Path

from privet.errors import InvalidArgumentError

# Argument of the Python interface → option, where the two have different names.
_RENAMED = {
    "source": "--data",
    "rows": "--data",
    "steps.epochs": "--epochs",
    "noise.schedule": "--bound-schedule",
    # Of privet federate, whose steps are rounds.
    "sampling.batch_size": "--cohort",
    "steps": "--rounds",
    "learning_rate": "--server-learning-rate",
}
# Option → fix, in place of one that names Python calls.
_FIXES = {
    "--classes": "The rows are private, so classes are never inferred from them: --classes 3 stands for the labels 0, 1 and 2; "
    "--classes setosa,versicolor,virginica names them.",
    "--delta": "Lower --delta: publishing one random record outright would satisfy this one.",
    "--steps": "It is the number of steps; --epochs sets it in passes over the data.",
    "--noise-multiplier": "Leave it out and set --epsilon to find the multiplier for a target.",
    "--optimizer": "",
}
_PYTHON = re.compile(r"\bprivet\.[a-z]|\bPlan\b|\bTraining\b|\.calibrate\b|=(True|None)\b")


class RunInterruptedError(Exception):
    """A run was stopped by Ctrl-C and can be resumed.

    Args:
        directory: of the run.
        verb: the command that resumes it.
    """

    def __init__(self, directory: Path, verb: str) -> None:
        super().__init__(f"interrupted; resume this run with: privet {verb} --resume {shlex.quote(str(directory))}")


def in_options(error: InvalidArgumentError, options: Collection[str]) -> InvalidArgumentError:
    """Return the error with the option that sets the argument, if the command has one, and a fix for the command line.

    Args:
        error: raised by the Python interface, about an argument such as "sampling.batch_size".
        options: the command's options, such as "--batch-size".

    >>> print(in_options(InvalidArgumentError("sampling.batch_size", 0, "greater than 0"), ["--batch-size"]))
    --batch-size is 0; it must be greater than 0.
    """
    names = (_RENAMED.get(error.name, ""), _as_option(error.name), _as_option(error.name.rpartition(".")[2]))
    option = next((name for name in names if name in options), error.name)
    fix = _FIXES.get(option, "") if _PYTHON.search(error.fix) else error.fix
    return InvalidArgumentError(option, error.value, *(_name_options(text, options) for text in (error.allowed, fix)))


def _name_options(text: str, options: Collection[str]) -> str:
    """Return the text with the options of arguments that have an underscore, which are no other words."""
    return re.sub(r"(?<![\w.])[a-z]+(_[a-z]+)+\b", lambda found: _name_option(found.group(), options), text)


def _name_option(word: str, options: Collection[str]) -> str:
    option = _as_option(word)
    return option if option in options else word


def _as_option(name: str) -> str:
    return "--" + re.sub(r"[._]", "-", name)
