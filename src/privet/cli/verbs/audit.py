"""`privet audit`: attack the mechanism of a plan from inside, and write a certificate."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from safetensors import SafetensorError, safe_open

from privet._utils.documents import DocumentError, read_text
from privet._utils.files import write_text
from privet._utils.progress import progress_bar
from privet.cli.output import Json, answer
from privet.errors import InvalidArgumentError
from privet.plan import Plan
from privet.training import read_plan

if TYPE_CHECKING:
    from privet.audit import GuaranteeCheck, MechanismAudit

CERTIFICATE = "certificate.json"
# What a program finds in the exit status: 0 passed, 1 failed, 2 could not be asked.
_FAILED = 1

Observations = Annotated[
    int, typer.Option(help="How many scores to look at: a million bound ε to some percent in about half a minute.")
]
Quiet = Annotated[bool, typer.Option(help="Show no progress bar.")]


def audit(
    run: Annotated[Path | None, typer.Argument(help="Directory of a run; its plan is audited.")] = None,
    plan: Annotated[Path | None, typer.Option(help="A plan.json, instead of a run.")] = None,
    out: Annotated[Path | None, typer.Option(help="File for the certificate; default: certificate.json in the run.")] = None,
    observations: Observations = 1_000_000,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Attack the mechanism of a plan from inside, and say what ε that shows at least.

    Exit status 0: nothing speaks against the claim. 1: something does. 2: it could not be asked.

    Example: privet audit runs/mnist
    """
    from privet.audit import mechanism

    if run is not None and plan is None:
        claim, names = read_plan(run), _names(run)
    elif plan is not None and run is None:
        claim, names = read_plan_file(plan), None
    else:
        raise InvalidArgumentError("RUN", None if run is None else str(run), "given, or else --plan", "Choose one of the two.")
    with parts(3, quiet=quiet) as progress:
        found = mechanism(claim, names=names, observations=observations, progress=progress)
    tell(found, json, out or (None if run is None else run / CERTIFICATE))


def tell(found: MechanismAudit | GuaranteeCheck, as_json: bool, path: Path | None) -> None:
    """Write the certificate, answer, and end with the status of the result."""
    if path is not None:
        write_text(path, found.to_json(indent=2) + "\n")
    where = "" if path is None else f"\n\nCertificate: {path}"
    answer(as_json, {**found.to_dict(), "certificate": None if path is None else str(path)}, f"{found}{where}")
    if not found.passed:
        raise typer.Exit(_FAILED)


@contextlib.contextmanager
def parts(number: int, *, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Yield what shows, on standard error, which of so many parts has begun."""
    with progress_bar(shown=not quiet) as bar:
        task = bar.add_task("auditing", total=number)
        begun = False

        def begin(part: str) -> None:
            nonlocal begun
            bar.update(task, description=part, advance=int(begun))
            begun = True

        yield begin
        bar.update(task, completed=number)


def read_plan_file(path: Path) -> Plan:
    """Return the plan in a file.

    Raises:
        InvalidArgumentError: it cannot be read, or holds none.
    """
    try:
        return Plan.from_json(read_text(path))
    except DocumentError as error:
        raise InvalidArgumentError("--plan", str(path), "a file that can be read", f"{error}.") from None


def _names(run: Path) -> list[str] | None:
    """Return the names of the run's parameters, which a rule may refer to; None if it kept no model."""
    path = run / "model.safetensors"
    if not path.exists():
        return None
    try:
        with safe_open(str(path), framework="pt") as file:
            return list(file.keys())
    except (OSError, SafetensorError) as error:
        raise InvalidArgumentError("run", str(path), "a model in safetensors", f"It cannot be read: {error}.") from None
