"""Finds the verb that is asked for, and turns every refusal into one clear line and exit status 2.

A verb is imported when it is asked for: `privet --help` needs no PyTorch.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.metadata import entry_points
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

import privet
from privet._utils import malloc
from privet.errors import PrivetError

# Verb → where its function or its group of verbs is, and what `privet --help` says of it.
VERBS = {
    "train": ("privet.cli.verbs.train:train", "Train a model with differential privacy, evaluate it and write a report."),
    "epsilon": ("privet.cli.verbs.privacy:epsilon", "Compute the ε that a training would spend."),
    "noise": ("privet.cli.verbs.privacy:noise", "Find the noise multiplier that a target ε needs."),
    "steps": ("privet.cli.verbs.privacy:steps", "Find how many steps a budget is enough for."),
    "audit": ("privet.cli.verbs.audit:audit", "Attack the mechanism of a plan and report the ε that the attack shows."),
    "check": ("privet.cli.verbs.check:check", "Check a model, its loss and its data, and audit the plan's mechanism."),
    "bench": ("privet.cli.verbs.bench:bench", "Measure the time and memory of a private step beside a plain one."),
    "guarantee": ("privet.cli.verbs.guarantee:guarantee", "Print the statement of a finished run."),
    "report": ("privet.cli.verbs.report:report", "Write the report of one run, or of several side by side."),
    "budget": ("privet.cli.verbs.budget:app", "What several runs on one data set may spend together."),
    "data": ("privet.cli.verbs.data:app", "List and fetch data sets."),
    "ledger": ("privet.cli.verbs.ledger:app", "What a run has spent, and whether its files fit together."),
}
# typer brings its own copy of click or uses the installed one; its errors share this base either way.
_UsageProblem = typer.BadParameter.__mro__[2]
# What shells report for a program that Ctrl-C ended.
_INTERRUPTED = 130


def _verbs() -> dict[str, str]:
    """Return verb → "module:function": those of this package, and those that installed packages add as `privet.commands`."""
    own = {verb: place for verb, (place, _) in VERBS.items()}
    return own | {entry.name: entry.value for entry in entry_points(group="privet.commands") if entry.name not in own}


def _find(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)


def _describe(verb: str, place: str) -> str:
    """Return the line of `privet --help` about a verb."""
    return VERBS[verb][1] if verb in VERBS else (_find(place).__doc__ or "").partition("\n")[0]


class _Verbs(TyperGroup):
    """The group of all verbs, none of which is imported before it is asked for."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands: Any = dict.fromkeys(_verbs())  # names to list, and to suggest for one that is misspelt

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a verb, or None if there is none of this name."""
        place = _verbs().get(cmd_name)
        if place is None:
            return None
        found = _find(place)
        if not isinstance(found, typer.Typer):
            single = typer.Typer(add_completion=False, rich_markup_mode=None)
            single.command(cmd_name)(found)
            found = single
        return typer.main.get_command(found)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the table of verbs."""
        with formatter.section("Commands"):
            formatter.write_dl([(verb, _describe(verb, place)) for verb, place in _verbs().items()])


app = typer.Typer(
    name="privet",
    cls=_Verbs,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Train PyTorch models with differential privacy.\n\nStart with: privet train --data mnist --epsilon 3 --delta 1e-5",
)


def _show_version(wanted: bool) -> None:
    if wanted:
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
    """Run the command line and exit: 0 when it worked, 2 with one line on standard error when something was refused.

    Args:
        arguments: without the program's name; those of the process if None.
    """
    if arguments is None:  # the process is ours
        malloc.keep_freed_memory()
    given = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    try:
        status = typer.main.get_command(app)(given, prog_name="privet", standalone_mode=False)
    except PrivetError as error:
        _refuse(str(error))
    except OSError as error:  # of the machine: a name that is too long, a folder that may not be read
        _refuse(f"{str(error.filename or '')[:200]}: {error.strerror or error}")
    except (KeyboardInterrupt, typer.Abort):
        status = _INTERRUPTED
    except Exception as error:
        if not isinstance(error, _UsageProblem):
            raise
        _refuse(getattr(error, "format_message", error.__str__)())
    if status == _INTERRUPTED:  # typer turns the interrupt into this status, or into Abort, depending on its version
        print("privet: stopped; an unfinished run goes on with: privet train --resume RUN", file=sys.stderr)
    raise SystemExit(status if isinstance(status, int) else 0)
