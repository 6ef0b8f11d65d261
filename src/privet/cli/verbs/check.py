"""`privet check`: what a training relies on, asked of the user's own model, loss and data."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from torch import nn

from privet.cli.definitions import defined_in
from privet.cli.output import Json
from privet.cli.verbs.audit import CERTIFICATE, Observations, Quiet, parts, read_plan_file, tell
from privet.plan import Plan

_NEEDED = "defines model, loss_fn and dataset (or batch and plan)"


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
    a plan, only `batch`. It may define `plan` (a privet.Plan with its noise), `collate` and `probe_batch`, as training is
    given them. At most sixteen examples are looked at, read and summed as training does it.

    Exit status 0: nothing speaks against training it. 1: something does, or training would refuse it. 2: it could not be asked.

    Example: privet check my_model.py --out certificate.json
    """
    from privet import audit

    with defined_in(file, _NEEDED) as given:
        data = given.data()
        claim = read_plan_file(plan) if plan is not None else given.find("plan", Plan) or audit.usual_plan(data.number)
        model, loss_fn = given.need("model", nn.Module), given.need("loss_fn", Callable)
        with parts(len(audit.FAMILIES) + 3, quiet=quiet) as progress:
            found = audit.check(
                model, loss_fn, data.batch, claim, dataset=data.dataset, collate=data.collate,
                probe_batch=given.find("probe_batch", object), observations=observations, progress=progress,
            )  # fmt: skip
    tell(found, json, out)
