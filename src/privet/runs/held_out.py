"""Queries of a run: class counts before the first step, and the final model's result on held-out entries."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import Dataset, TensorDataset

from privet.accounting.privacy_unit import find_unit
from privet.errors import InvalidArgumentError
from privet.evaluation import HeldOutEstimate
from privet.evaluation.held_out import estimate, score_entries
from privet.ledger.answers import bounded_sum
from privet.plan import ClassCounts, Holdout, Plan
from privet.runs.tasks import AdjustedCrossEntropy, Task
from privet.training import Training
from privet.units import Users

LOST = "The {} were paid for by a process that ended before it recorded them; they are counted, and never drawn again"
# Smallest released class prior, as a fraction of the uniform one: noise can make the count of a rare class negative.
_LEAST_PRIOR = 0.02
_READ_AT_ONCE = 1024


def check_queries(plan: Plan, held_out: int) -> None:
    """Refuse a plan whose query on held-out entries does not fit the number of entries that a run holds out."""
    planned = 0 if plan.holdout is None else plan.holdout.examples
    if planned != held_out:
        fix = "Give --holdout together with --evaluation-epsilon, or a plan with a holdout of that size."
        raise InvalidArgumentError("plan.holdout", planned, f"for the {held_out} entries that the run holds out", fix)


def release_estimate(
    training: Training, model: nn.Module, task: Task, held_out: Dataset[Any], device: str
) -> HeldOutEstimate | None:
    """Return the result of the final model on held-out entries; None if a process that was killed had paid for it.

    Guarantee:
        See `privet.plan.Holdout` for the total ε, `bounded_sum` for the exact sensitivity, and `answer_query` for the order of
        payment and release. The model is a function of what the training released, and the interval is post-processing.
    """
    plan, scores = training.plan, task.scores
    assert plan.holdout is not None
    query = plan.holdout
    noised = training.answer(Holdout.NAME, lambda: bounded_sum(score_entries(model, held_out, scores, device), scores.bound))
    if noised is None:
        return None
    metrics, intervals = estimate(task.name, noised, examples=query.examples, noise_multiplier=query.multiplier, width=task.width)
    counted = find_unit(plan.unit).counted
    return HeldOutEstimate(
        task=task.name,
        metrics=metrics,
        intervals=intervals,
        examples=query.examples,
        unit=counted if isinstance(held_out, Users) else "example",
        epsilon=plan.holdout_epsilon(),
        delta=plan.delta,
        noise_multiplier=query.multiplier,
    )


def adopt_priors(training: Training, task: Task, entries: Dataset[Any]) -> bool:
    """Let the loss of a task adopt the class priors that the plan's query releases, if any; return False if they are lost."""
    if training.plan.class_counts is None:
        return True
    assert isinstance(task.loss, AdjustedCrossEntropy)
    priors = count_classes(training, entries, task.outputs)
    if priors is not None:
        task.loss.adopt(priors)
    return priors is not None


def count_classes(training: Training, entries: Dataset[Any], classes: int) -> tuple[float, ...] | None:
    """Return (K,) class priors > 0 with sum 1, from noised counts of training entries; None if their answer was lost.

    Guarantee:
        An entry contributes its class as a vector of K zeros and a one, or (a user or group) a mean of such vectors, minus 1/K in
        every coordinate: at most √(1 − 1/K) in L2 norm. An undeclared label contributes nothing. Clipping and scaling to a sum
        of 1 is post-processing.
    """
    bound = float(np.sqrt(1 - 1 / classes))
    noised = training.answer(ClassCounts.NAME, lambda: bounded_sum(_centred_classes(entries, classes), bound))
    if noised is None:
        return None
    shares = np.maximum(1 / classes + np.array(noised) / training.plan.examples, _LEAST_PRIOR / classes)
    return tuple(float(share) for share in shares / shares.sum())


def _centred_classes(entries: Any, classes: int) -> Tensor:
    """Return the contribution of each entry, (N, K) float64."""
    if isinstance(entries, TensorDataset):
        return _fractions(entries.tensors[1][:, None], torch.ones(len(entries), 1, dtype=torch.bool, device="cpu"), classes)
    parts = []
    for start in range(0, len(entries), _READ_AT_ONCE):
        (_, labels), mask = entries.read(np.arange(start, min(len(entries), start + _READ_AT_ONCE)))
        parts.append(_fractions(labels, mask, classes))
    return torch.cat(parts)


def _fractions(labels: Tensor, mask: Tensor, classes: int) -> Tensor:
    """Return the mean of the centred class vectors of each row's examples, from labels (N, k) and their mask (N, k)."""
    known = (labels >= 0) & (labels < classes)
    rows = F.one_hot(torch.where(known, labels, 0), classes).double() - 1 / classes
    return (rows * (known & mask)[:, :, None]).sum(1) / mask.sum(1, keepdim=True)
