"""`privet audit` and `privet check`: attack a plan's mechanism, test a user's program, and write a certificate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from safetensors import SafetensorError, safe_open
from torch import nn

from privet._utils.documents import DocumentError, read_text
from privet._utils.files import write_text
from privet._utils.progress import progress_of_parts
from privet.cli.definitions import load_definitions
from privet.cli.output import Json, Quiet, answer
from privet.errors import InvalidArgumentError, LedgerError
from privet.plan import Plan
from privet.training import read_plan
from privet.training.manifest import name_of, read

if TYPE_CHECKING:
    from privet.audit import GuaranteeCheck, MechanismAudit

CERTIFICATE = "certificate.json"
# A round of clients takes several times as long as a step of examples.
_OBSERVATIONS, _OF_CLIENTS = 1_000_000, 200_000
_FAILED = 1  # exit status; 2 is an error
_NEEDED = "defines model, loss_fn and dataset (or batch and plan)"


def audit(
    run: Annotated[Path | None, typer.Argument(metavar="RUN", help="Directory of the run whose plan is audited.")] = None,
    plan: Annotated[Path | None, typer.Option(help="A plan.json to audit, instead of RUN.")] = None,
    out: Annotated[Path | None, typer.Option(help="File for the certificate; default: certificate.json in RUN.")] = None,
    federated: Annotated[
        bool, typer.Option("--federated", help="Hold federated rounds, with canaries for clients; always so for a federated RUN.")
    ] = False,
    observations: Annotated[
        int | None, typer.Option(help="Number of attack scores; default: a million, or 200,000 of clients. More are tighter.")
    ] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Attack the mechanism of a plan with white-box access and report the lower bound on ε that the attack proves.

    Exit status: 0 if the lower bound does not exceed the claimed ε, 1 if it does, 2 after an error.

    Example: privet audit runs/mnist
    """
    from privet.audit import hold_rounds, mechanism
    from privet.audit.production import train
    from privet.federated.server import Cohorts

    if run is not None and plan is None:
        claim, names = read_plan(run), _parameter_names(run)
    elif plan is not None and run is None:
        claim, names = _read_plan_file(plan), None
    else:
        given = None if run is None else str(run)
        raise InvalidArgumentError("RUN", given, "given if --plan is not, and left out if it is", "Give exactly one of the two.")
    of_clients = federated or (run is not None and _read_manifest(run).get("data") == name_of(Cohorts))
    number = observations if observations is not None else _OF_CLIENTS if of_clients else _OBSERVATIONS
    with progress_of_parts(3, quiet=quiet) as progress:
        found = mechanism(claim, hold_rounds if of_clients else train, names=names, observations=number, progress=progress)
    _print_result(found, json, out or (None if run is None else run / CERTIFICATE))


def check(
    file: Annotated[Path, typer.Argument(metavar="MODEL.py", help=f"A Python file that {_NEEDED}; it is executed.")],
    plan: Annotated[
        Path | None, typer.Option(help="A plan.json; default: the plan that MODEL.py defines, or else a typical one.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help=f"File for the certificate, such as {CERTIFICATE}.")] = None,
    observations: Annotated[
        int, typer.Option(help="Number of attack scores; a million bound ε to a few percent in about half a minute.")
    ] = 200_000,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Check a model, its loss and its data, and audit the plan's mechanism.

    The checks are ORACLE, ISOLATION, SENS, NOISE, SAMPLER and AUDIT. MODEL.py defines `model` (a module), `loss_fn` ((model,
    batch) → one loss per example) and `dataset` (map-style); with a plan, `batch` is enough. It may define `plan` (a privet.Plan
    with its noise), `collate` and `probe_batch`, as for training. The checks read and sum at most sixteen examples, as training
    does.

    Exit status: 0 if all checks pass, 1 if one fails or training would refuse the model, 2 after an error.

    Example: privet check my_model.py --out certificate.json
    """
    from privet.audit import FAMILIES
    from privet.audit import check as check_program

    with load_definitions(file, _NEEDED) as given:
        dataset = given.find("dataset", object)
        batch = given.require("batch", object) if dataset is None else None
        collate = None if dataset is None else given.find("collate", Callable)
        claim = given.find("plan", Plan) if plan is None else _read_plan_file(plan)
        model, loss_fn = given.require("model", nn.Module), given.require("loss_fn", Callable)
        with progress_of_parts(len(FAMILIES) + 3, quiet=quiet) as progress:
            found = check_program(
                model, loss_fn, batch, claim, dataset=dataset, collate=collate,
                probe_batch=given.find("probe_batch", object), observations=observations, progress=progress,
            )  # fmt: skip
    _print_result(found, json, out)


def _print_result(found: MechanismAudit | GuaranteeCheck, as_json: bool, path: Path | None) -> None:
    if path is not None:
        write_text(path, found.to_json(indent=2) + "\n")
    where = "" if path is None else f"\n\nCertificate: {path}"
    answer(as_json, {**found.to_dict(), "certificate": None if path is None else str(path)}, f"{found}{where}")
    if not found.passed:
        raise typer.Exit(_FAILED)


def _read_plan_file(path: Path) -> Plan:
    try:
        return Plan.from_json(read_text(path))
    except DocumentError as error:
        raise InvalidArgumentError("--plan", str(path), "a readable file", cause=f"{error}") from None


def _parameter_names(run: Path) -> list[str] | None:
    from privet.artifact.folder import find_weights

    path = find_weights(run)
    if path is None:
        described, prefix = _read_manifest(run), "model.parameters."
        found = [path for path, kind in described.items() if path.startswith(prefix) and str(kind).endswith("trained")]
        return [path.removeprefix(prefix) for path in found] or None
    try:
        with safe_open(str(path), framework="pt") as file:
            return list(file.keys())
    except (OSError, SafetensorError) as error:
        raise InvalidArgumentError("run", str(path), "a model in safetensors format", cause=f"{error}") from None


def _read_manifest(run: Path) -> Mapping[str, Any]:
    try:
        return read(run) or {}
    except LedgerError as error:
        raise InvalidArgumentError("RUN", str(run), "a directory with a readable manifest", cause=f"{error}") from None
