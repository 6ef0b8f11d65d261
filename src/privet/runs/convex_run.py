"""Runs of convex training: one release of a linear model, in a directory with plan, ledger, model and statement.

First: plan.json, run.json, ledger; for tables, schema.toml. At the end: model/, evaluation.json, guarantee.json, guarantee.md,
status.json.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from privet._utils.files import write_text
from privet.artifact import Architecture
from privet.convex import AdjustedLogistic, ConvexGuarantee, ConvexPlan, Huber, Logistic, fit
from privet.convex.convex_losses import ConvexLoss
from privet.convex.convex_statement import state_guarantee
from privet.data import DataSet
from privet.errors import InvalidArgumentError
from privet.evaluation import Evaluation, RegressionEvaluation
from privet.runs.model_folder import write_model
from privet.runs.tasks import task_of
from privet.training.directory import LEDGER, PLAN, STATUS, claim, write_guarantee

_RESAMPLES = 1000
_EVALUATED = "evaluated beside the guarantee on the test set, which is assumed public: {}"


@dataclass(frozen=True)
class ConvexOutcome:
    """The results of a finished run; without a test set, no evaluation and no description of it."""

    directory: Path
    plan: ConvexPlan
    guarantee: ConvexGuarantee
    evaluation: Evaluation | RegressionEvaluation | None
    test_data: str | None
    seconds: float


def describe_data(dataset: DataSet, threshold: float) -> tuple[int, int, ConvexLoss]:
    """Return the public numbers of examples and features, and the loss for the task; `threshold` is τ of `Huber`."""
    if not dataset.train.tensors[0].is_floating_point():
        raise InvalidArgumentError("data", dataset.name, "a data set with numeric inputs")
    if dataset.users is not None:
        fix = "Here one example is the unit of privacy; for users: privet train."
        raise InvalidArgumentError("data", dataset.name, "without users", fix)
    priors = () if dataset.schema is None else dataset.schema.priors
    if dataset.classes is None:
        loss: ConvexLoss = Huber(threshold)
    else:
        loss = AdjustedLogistic(dataset.classes, priors) if priors else Logistic(dataset.classes)
    return len(dataset.train), math.prod(dataset.input_shape), loss


def fit_and_write(
    plan: ConvexPlan, dataset: DataSet, directory: Path, *, data: str, license: str | None = None,
    purpose: str | None = None, device: str = "cpu", defaults: Mapping[str, Any] | None = None,
) -> ConvexOutcome:  # fmt: skip
    """Fit a model by a calibrated plan and write all files into a new directory.

    Guarantee:
        That of `privet.convex.fit`; the files hold its release, public facts, and results on public test data.
    """
    claim(directory)
    write_text(directory / PLAN, plan.to_json(indent=2) + "\n")  # first, so that the ledger of a crashed run can be verified
    task, start = task_of(dataset), time.perf_counter()
    inputs, targets = dataset.train.tensors
    weights = fit(plan, inputs.to(device), targets.to(device), ledger=directory / LEDGER)
    seconds = time.perf_counter() - start
    options = {"radius": plan.radius, "intercept": plan.intercept}
    architecture = Architecture("bounded-linear", dataset.input_shape, plan.loss.outputs, options)
    module = architecture.build()
    with torch.no_grad():
        module.output.weight.copy_(weights)  # type: ignore[operator, union-attr]
    evaluation = None if dataset.test is None else task.evaluate(module, dataset.test, "cpu", _RESAMPLES)
    notes = dataset.notes if dataset.test_data is None else (*dataset.notes, _EVALUATED.format(dataset.test_data).capitalize())
    guarantee = state_guarantee(plan, notes, dataset.public, " ".join((purpose or "").split()))
    write_model(directory, module, architecture, dataset, guarantee, evaluation, name=data, license=license)
    facts = {
        "data": data,
        "model": architecture.name,
        "mechanism": type(plan.mechanism).__name__,
        "seconds": round(seconds, 2),
        "parameters": weights.numel(),
        "provenance": dataset.provenance,
        "test_data": dataset.test_data,
        "purpose": purpose,
        "defaults": dict(defaults or {}),
        "versions": dict(guarantee.versions),
    }
    files = {
        "run.json": json.dumps(facts, indent=2),
        STATUS: json.dumps({"state": "complete", "steps_done": 1, "steps_planned": 1}),
    }
    if dataset.schema is not None:
        files["schema.toml"] = dataset.schema.to_toml().rstrip("\n")
    if evaluation is not None:
        files["evaluation.json"] = json.dumps(evaluation.to_dict())
    write_guarantee(directory, guarantee)
    for name, text in files.items():
        write_text(directory / name, text + "\n")
    return ConvexOutcome(directory, plan, guarantee, evaluation, dataset.test_data, seconds)
