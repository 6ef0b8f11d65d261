"""`privet check`: test a user's model, loss and data for what private training relies on."""

from __future__ import annotations

__all__ = ["check"]

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from torch import nn

from privet.cli.definitions import load_definitions
from privet.cli.output import Json
from privet.cli.verbs.audit import CERTIFICATE, Observations, Quiet, print_result, progress_of_parts, read_plan_file
from privet.plan import Plan

_NEEDED = "defines model, loss_fn and dataset (or batch and plan)"


def check(
    file: Annotated[Path, typer.Argument(metavar="MODEL.py", help=f"A Python file that {_NEEDED}; it is executed.")],
    plan: Annotated[
        Path | None, typer.Option(help="A plan.json; default: the plan that MODEL.py defines, or else a typical one.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help=f"File for the certificate, such as {CERTIFICATE}.")] = None,
    observations: Observations = 200_000,
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
    from privet import audit

    with load_definitions(file, _NEEDED) as given:
        dataset = given.find("dataset", object)
        batch = given.require("batch", object) if dataset is None else None
        collate = None if dataset is None else given.find("collate", Callable)
        claim = given.find("plan", Plan) if plan is None else read_plan_file(plan)
        model, loss_fn = given.require("model", nn.Module), given.require("loss_fn", Callable)
        with progress_of_parts(len(audit.FAMILIES) + 3, quiet=quiet) as progress:
            found = audit.check(
                model, loss_fn, batch, claim, dataset=dataset, collate=collate,
                probe_batch=given.find("probe_batch", object), observations=observations, progress=progress,
            )  # fmt: skip
    print_result(found, json, out)
