"""`privet check`: what a training relies on, asked of the user's own model, loss and data."""

from __future__ import annotations

import runpy
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from torch import nn

from privet.batches import Rows, check_map_style
from privet.cli.audit import CERTIFICATE, Observations, Quiet, parts, read_plan_file, tell
from privet.cli.output import Json
from privet.errors import InvalidArgumentError, PrivetError
from privet.gradients.trees import examples_in
from privet.plan import Plan

_NEEDED = "defines model, loss_fn and dataset (or batch and plan)"
_EXAMPLES = 8


def check(
    file: Annotated[Path, typer.Argument(metavar="MODEL.py", help=f"A Python file that {_NEEDED}; it is run.")],
    plan: Annotated[Path | None, typer.Option(help="A plan.json; default: the file's plan, else a usual one.")] = None,
    out: Annotated[Path | None, typer.Option(help=f"File for the certificate, such as {CERTIFICATE}.")] = None,
    observations: Observations = 200_000,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Check a model, its loss and data, and audit the plan's mechanism: ORACLE, ISOLATION, SENS, NOISE, SAMPLER, AUDIT.

    The file defines `model` (a module), `loss_fn` ((model, batch) → one loss per example) and `dataset` (map-style), or, with
    a plan, only `batch`. It may define `plan` (a privet.Plan with its noise) and `collate`. At most eight examples are looked at.

    Exit status 0: nothing speaks against training it. 1: something does. 2: it could not be asked.

    Example: privet check my_model.py --out certificate.json
    """
    from privet import audit

    with _running(file), redirect_stdout(sys.stderr):  # what the file prints is no result
        given = _Definitions(file, runpy.run_path(str(file)))
        batch, examples = given.examples()
        claim = read_plan_file(plan) if plan is not None else given.find("plan", Plan) or audit.usual_plan(examples)
        model, loss_fn = given.need("model", nn.Module), given.need("loss_fn", Callable)
        with parts(len(audit.FAMILIES) + 3, quiet=quiet) as progress:
            found = audit.check(model, loss_fn, batch, claim, observations=observations, progress=progress)
    tell(found, json, out)


@contextmanager
def _running(file: Path) -> Iterator[None]:
    """Refuse, in a line that says where, whatever goes wrong in somebody's own code or because of it.

    Raises:
        InvalidArgumentError: something did, or it wanted to leave.
    """
    try:
        yield
    except PrivetError:
        raise
    except (Exception, SystemExit) as error:
        own = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
        where = f" (line {own[-1]})" if own else ""
        raise InvalidArgumentError(
            "MODEL.py", str(file), f"a Python file that {_NEEDED}, which work together",
            f"It fails{where}: {type(error).__name__}: {str(error).rstrip('.')}.",
        ) from error  # fmt: skip


@dataclass(frozen=True)
class _Definitions:
    """What a file defines."""

    file: Path
    values: Mapping[str, Any]

    def find(self, name: str, kind: Any) -> Any:
        """Return what has this name; None if nothing has.

        Raises:
            InvalidArgumentError: it is something else.
        """
        value = self.values.get(name)
        if value is not None and not isinstance(value, kind):
            raise InvalidArgumentError(f"{self.file.name}: {name}", type(value).__name__, f"a {kind.__name__}")
        return value

    def need(self, name: str, kind: Any) -> Any:
        """Return what has this name.

        Raises:
            InvalidArgumentError: nothing has, or it is something else.
        """
        value = self.find(name, kind)
        if value is None:
            raise InvalidArgumentError("MODEL.py", str(self.file), f"a file that {_NEEDED}", f"It defines no {name}.")
        return value

    def examples(self) -> tuple[Any, int]:
        """Return the first examples, and how many there are in all: for a batch, those in it."""
        data = self.find("dataset", object)
        if data is None:
            batch = self.need("batch", object)
            return batch, examples_in(batch)
        number = check_map_style(data)
        if number < 2:
            raise InvalidArgumentError(f"{self.file.name}: dataset", number, "at least two examples")
        return Rows(data, self.find("collate", Callable)).read(np.arange(min(_EXAMPLES, number))), number
