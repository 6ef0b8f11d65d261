"""Entry point: import the requested command, and turn every expected error into one line and exit status 2.

Commands are imported on request, so that `privet --help` needs no PyTorch.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

import privet
from privet._utils import malloc
from privet.cli.output import CommandByTopic, RunInterruptedError, group
from privet.errors import PrivetError

# Command → its function or group of commands as "module:name", and its line in `privet --help`.
VERBS = {
    "train": ("privet.cli._verbs.train:train", "Train a model with differential privacy and evaluate it."),
    "federate": ("privet.cli._verbs.federate:federate", "Train a model on the updates of users with differential privacy."),
    "fit": ("privet.cli._verbs.fit:fit", "Fit a linear model with noise on its objective or its minimiser."),
    "predict": ("privet.cli._verbs.model:predict", "Write the predictions of a trained model for the rows of a file."),
    "export": ("privet.cli._verbs.model:export", "Write the network of a trained model for other programs."),
    "plan": ("privet.cli._verbs.plan:plan", "Show noise, signal and time of a training at several ε, without training."),
    "epsilon": ("privet.cli._verbs.privacy:epsilon", "Compute the ε of a training run or of any composition."),
    "noise": ("privet.cli._verbs.privacy:noise", "Find the noise multiplier for a target ε."),
    "steps": ("privet.cli._verbs.privacy:steps", "Find the number of steps that a privacy budget allows."),
    "audit": ("privet.cli._verbs.audit:audit", "Attack the mechanism of a plan to bound its ε from below."),
    "check": ("privet.cli._verbs.audit:check", "Check your model, loss and data before training."),
    "bench": ("privet.cli._verbs.bench:bench", "Measure time and memory of a private training step."),
    "guarantee": ("privet.cli._verbs.report:guarantee", "Print the privacy statement of a finished run."),
    "report": ("privet.cli._verbs.report:report", "Write the HTML report of a run, or compare runs."),
    "budget": ("privet.cli._verbs.spending:budget_app", "Share one privacy budget among runs on the same data."),
    "data": ("privet.cli._verbs.data:data_app", "List and fetch data sets."),
    "schema": ("privet.cli._verbs.data:schema_app", "Draft and check the public schema of a table."),
    "ledger": ("privet.cli._verbs.spending:ledger_app", "Show what a run has spent, and verify its files."),
}
# typer uses the installed click or its own copy; usage errors of both have this base class.
_UsageProblem = typer.BadParameter.__mro__[2]
_TWICE = re.compile(r"( Did you mean [^?]*\?)\1")
# The exit status that shells report for a program stopped by Ctrl-C.
_INTERRUPTED = 130
_OTHERS = "privet.commands"  # entry points of other packages
# Widest help text, in columns, on a terminal that has them.
_HELP_WIDTH = 100


@functools.cache
def _verbs() -> dict[str, EntryPoint]:
    """Return command → its place, of this package and of the entry points `privet.commands` of other packages."""
    own = {verb: EntryPoint(verb, place, _OTHERS) for verb, (place, _) in VERBS.items()}
    return own | {entry.name: entry for entry in entry_points(group=_OTHERS) if entry.name not in own}


class _Verbs(TyperGroup):
    """The group of all commands, each imported when it is requested."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands: Any = dict.fromkeys(_verbs())  # names to list, and to suggest for a misspelt one

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command with this name, or None."""
        place = _verbs().get(cmd_name)
        if place is None:
            return None
        found = place.load()
        if not isinstance(found, typer.Typer):
            single, found = found, group()
            found.command(cmd_name, context_settings={"max_content_width": _HELP_WIDTH})(single)
        for command in found.registered_commands:  # those of a group, too
            command.cls = CommandByTopic
        return typer.main.get_command(found)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the table of commands."""
        with formatter.section("Commands"):
            rows = {verb: line for verb, (_, line) in VERBS.items()}
            others = {name: place for name, place in _verbs().items() if name not in rows}
            rows |= {name: (place.load().__doc__ or "").partition("\n")[0] for name, place in others.items()}
            formatter.write_dl([*rows.items()])


app = group(
    name="privet",
    cls=_Verbs,
    pretty_exceptions_enable=False,
    help="Train PyTorch models with differential privacy.\n\nStart with: privet train --data mnist --epsilon 3 --delta 1e-5",
)


def _show_version(requested: bool) -> None:
    if requested:
        print(f"privet {privet.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version and exit.")
    ] = False,
) -> None: ...


def _refuse(message: str) -> NoReturn:
    print("privet: error: " + " ".join(message.split()), file=sys.stderr)
    raise SystemExit(2)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit, with status 0 on success and status 2 and one line on standard error after an error.

    Args:
        arguments: command-line arguments without the program's name; None for those of the process.
    """
    if arguments is None:  # the process runs nothing but this command
        malloc.keep_freed_memory()
    given = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    try:
        status = typer.main.get_command(app)(given, prog_name="privet", standalone_mode=False, obj=given)
    except PrivetError as error:
        _refuse(str(error))
    except OSError as error:  # such as a name that is too long, or a folder without read permission
        _refuse(f"{str(error.filename or '')[:200]}: {error.strerror or error}")
    except RunInterruptedError as interruption:
        print(f"privet: {interruption}", file=sys.stderr)
        raise SystemExit(_INTERRUPTED) from None
    except (KeyboardInterrupt, typer.Abort):
        status = _INTERRUPTED
    except Exception as error:
        if not isinstance(error, _UsageProblem):
            raise
        # Some versions of typer suggest a command that click suggests as well.
        _refuse(_TWICE.sub(r"\1", getattr(error, "format_message", error.__str__)()))
    if status == _INTERRUPTED:  # depending on its version, typer turns the interrupt into this status or into Abort
        print("privet: interrupted", file=sys.stderr)
    raise SystemExit(status if isinstance(status, int) else 0)
