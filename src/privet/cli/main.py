"""Assembles the verbs and turns every refusal into one clear line and exit status 2."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

import typer

from privet import memory
from privet.cli import audit, bench, budget, check, data, ledger, privacy, report, reproduce, train
from privet.errors import PrivetError

# typer brings its own copy of click or uses the installed one; its errors share this base either way.
_UsageProblem = typer.BadParameter.__mro__[2]
# What shells report for a program that Ctrl-C ended.
_INTERRUPTED = 130

app = typer.Typer(
    name="privet",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Train PyTorch models with differential privacy.\n\nStart with: privet train --data mnist --epsilon 3 --delta 1e-5",
)
app.command("train")(train.train)
app.command("epsilon")(privacy.epsilon)
app.command("noise")(privacy.noise)
app.command("steps")(privacy.steps)
app.command("audit")(audit.audit)
app.command("check")(check.check)
app.command("bench")(bench.bench)
app.command("report")(report.report)
app.command("reproduce")(reproduce.reproduce)
app.add_typer(budget.app, name="budget")
app.add_typer(data.app, name="data")
app.add_typer(ledger.app, name="ledger")


def _refuse(message: str) -> NoReturn:
    print("privet: error: " + " ".join(message.split()), file=sys.stderr)
    raise SystemExit(2)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit: 0 when it worked, 2 with one line on standard error when something was refused.

    Args:
        arguments: without the program's name; those of the process if None.
    """
    if arguments is None:  # the process is ours
        memory.keep_freed()
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
