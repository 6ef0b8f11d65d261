"""What a command shows: prose or JSON, help by topic, and errors that name options and commands in place of Python's."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from privet.errors import InvalidArgumentError

# Topics of options, in the order of the help.
DATA = "Data"
CLIENTS = "Clients"
PRIVACY = "Privacy"
SAMPLING = "Sampling and length"
MODEL = "Model and optimizer"
CLIPPING = "Clipping"
VARIANTS = "Correlated noise, momentum and sparsification"
RUN = "Run"
_ORDER = (DATA, CLIENTS, PRIVACY, SAMPLING, MODEL, CLIPPING, VARIANTS, RUN)
# Width of the column of option names; click's default. A longer name gets a line to itself.
_WIDEST_NAME = 30

JSON = typer.Option("--json", help="Print one JSON object as the last line of standard output.")
Json = Annotated[bool, JSON]
Quiet = Annotated[bool, typer.Option(help="Show no progress bar.")]
# A group of commands.
group = partial(typer.Typer, add_completion=False, rich_markup_mode=None)

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
}
_PYTHON = re.compile(r"\bprivet\.[a-z]|\bPlan\b|\bTraining\b|\.calibrate\b|=(True|None)\b")


def answer(as_json: bool, values: Mapping[str, object], prose: str) -> None:
    """Print the values as one line of JSON, with infinity as the string "inf", or else the prose."""
    if as_json:
        prose = json.dumps({key: "inf" if value == math.inf else value for key, value in values.items()}, ensure_ascii=False)
    print(prose)


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table with columns that are aligned on the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(word.rjust(width) for word, width in zip(row, widths, strict=True)) for row in rows]


class RunInterruptedError(Exception):
    """The run in this directory was stopped by Ctrl-C; the verb resumes it."""

    def __init__(self, directory: Path, verb: str) -> None:
        super().__init__(f"interrupted; resume this run with: privet {verb} --resume {shlex.quote(str(directory))}")


class CommandByTopic(TyperCommand):
    """A verb whose help groups options by `rich_help_panel`, without rich's boxes and colours, and whose errors name options."""

    def invoke(self, ctx: Any) -> Any:
        """Run the verb; an error about an argument of the Python interface names the option that sets it."""
        try:
            return super().invoke(ctx)
        except InvalidArgumentError as error:
            raise in_options(error, {option for parameter in self.params for option in parameter.opts}) from error

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write a list of options per topic, with the same columns; options that are not COMMON come last, as "Advanced"."""
        names = (*_ORDER, "Arguments", "Options")
        topics: dict[tuple[bool, str], list[tuple[str, str]]] = {(late, name): [] for late in (False, True) for name in names}
        common = getattr(getattr(self.callback, "options", None), "COMMON", None)
        for parameter in self.get_params(ctx):
            if record := parameter.get_help_record(ctx):
                default = "Arguments" if parameter.param_type_name == "argument" else "Options"
                topic = getattr(parameter, "rich_help_panel", None) or default
                advanced = common is not None and topic != default and parameter.name not in common
                topics.setdefault((advanced, topic), []).append(record)
        width = min(_WIDEST_NAME, max((len(name) for records in topics.values() for name, _ in records), default=0))
        with ExitStack() as stack:
            for (advanced, topic), records in topics.items():
                if records and advanced and not formatter.current_indent:
                    stack.enter_context(formatter.section("Advanced"))
                if records:
                    with formatter.section(topic):
                        # With rich installed, some versions of typer escape brackets for it.
                        formatter.write_dl([(name.ljust(width), text.replace("\\[", "[")) for name, text in records])


def as_option(name: str) -> str:
    """Return the option for a field, or for an argument such as "sampling.batch_size"."""
    return "--" + re.sub(r"[._]", "-", name)


def in_options(error: InvalidArgumentError, options: Collection[str]) -> InvalidArgumentError:
    """Return the error with the command's option that sets the argument, if there is one, and a fix for the command line.

    >>> print(in_options(InvalidArgumentError("sampling.batch_size", 0, "greater than 0"), ["--batch-size"]))
    --batch-size is 0; it must be greater than 0.
    """
    names = (_RENAMED.get(error.name, ""), as_option(error.name), as_option(error.name.rpartition(".")[2]))
    option = next((name for name in names if name in options), error.name)
    fix = _FIXES.get(option, "") if _PYTHON.search(error.fix) else error.fix

    def renamed(found: re.Match[str]) -> str:
        return as_option(found.group()) if as_option(found.group()) in options else found.group()

    # Words with an underscore are arguments.
    texts = (re.sub(r"(?<![\w.])[a-z]+(_[a-z]+)+\b", renamed, text) for text in (error.allowed, fix, error.cause))
    return InvalidArgumentError(option, error.value, *texts)
