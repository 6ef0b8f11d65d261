"""Training and evaluation of a network for a recipe."""

from __future__ import annotations

__all__ = ["CLASSIFICATION", "REGRESSION", "Objective", "outputs", "squared_error"]

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

from privet import models
from privet.data import DataSet
from privet.evaluation import Evaluation, evaluate, evaluate_regression
from privet.gradients.core.losses import LossFunction
from privet.runs.tasks import cross_entropy
from privet.training import Training
from privet_experiments.features import of_sequences
from privet_experiments.studies.mask_counts import MaskCounts
from privet_experiments.tasks.job import Advance, Job, TaskResult, load
from privet_experiments.tasks.metrics import OF_MASKS, OF_THE_RUN
from privet_experiments.tasks.studies import GradientObserver

# Evaluation batch size; it limits memory and the padding of sequences.
_AT_ONCE, _SEQUENCES_AT_ONCE = 512, 64


@dataclass(frozen=True)
class Objective:
    """Learning objective: (model, batch) → (B,) losses, and (model, examples) → a value whose attributes are metrics."""

    loss: LossFunction
    measure: Callable[[nn.Module, TensorDataset], object]

    def __call__(self, job: Job, advance: Advance) -> TaskResult:
        """Train and evaluate, with gradient studies if the job requests them."""
        examples, settings = load(job.examples, job.settings.features), job.settings
        assert examples.test is not None  # `load` refuses others
        plan = settings.plan_for(len(examples.train))
        if settings.epsilon is not None:
            plan = plan.calibrate(settings.epsilon)
        setup = settings.setup(str(job.examples.data), job.rate, job.seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(job.seed)
            model = models.build(settings.model, examples.input_shape, outputs(examples), **settings.model_options)
        average = setup.build_average(model)
        trained = model if average is None else average.module
        measured = [metric for metric in job.metrics if metric not in {**OF_THE_RUN, **OF_MASKS}]
        counts = MaskCounts(plan, model)
        curve: list[dict[str, float]] = []
        confidence: dict[str, Any] | None = None
        studies = (*job.studies, *(study for study in job.new_studies if study not in job.studies))
        marks, observer = job.marks, GradientObserver(studies, job.study_epochs, plan, model, self.loss, examples.train)
        optimizer = setup.build_optimizer(plan, model)
        at_once = _SEQUENCES_AT_ONCE if of_sequences(settings.features) else _AT_ONCE
        with Training(
            plan, model, self.loss, optimizer, examples.train, physical_batch_size=at_once, average=average,
            scheduler=settings.build_scheduler(optimizer, plan), public=setup.load_public(plan, examples),
        ) as training:  # fmt: skip
            for step in training:
                advance(1)
                observer.look(step.number)
                counts.add(step.number, training.masks)
                if step.number in marks:
                    evaluation = self.measure(trained, examples.test)
                    found = {metric: float(getattr(evaluation, metric)) for metric in measured}
                    curve.append({"step": step.number, "epsilon": training.epsilon(), **found})
                    confidence = _confidence(evaluation)
        final = {
            metric: OF_THE_RUN[metric](job, plan, examples, training.method) for metric in job.metrics if metric in OF_THE_RUN
        }
        final |= {metric: OF_MASKS[metric](counts) for metric in job.metrics if metric in OF_MASKS}
        return TaskResult(
            metrics={metric: (curve[-1] | final)[metric] for metric in job.metrics},
            curve=curve,
            plan=plan.to_dict(),
            epsilon=curve[-1]["epsilon"],
            study=observer.kept(),
            confidence=confidence,
        )


def squared_error(model: nn.Module, batch: Any) -> Tensor:
    """Return the squared error of every example, (B,), for a model with one output."""
    inputs, targets = batch
    return F.mse_loss(model(inputs)[:, 0], targets, reduction="none")


CLASSIFICATION = Objective(cross_entropy, evaluate)
REGRESSION = Objective(squared_error, evaluate_regression)


def _confidence(evaluation: object) -> dict[str, Any] | None:
    """Return the bin tables of an evaluation for reliability diagrams and histograms of confidence, if it has them."""
    if not isinstance(evaluation, Evaluation) or evaluation.calibration is None or evaluation.true_class is None:
        return None
    return {"predicted": evaluation.calibration.to_dict(), "true_class": evaluation.true_class.to_dict()}


def outputs(data: DataSet) -> int:
    """Return the number of outputs that a network for this data needs: one per label, or one for a target."""
    return 1 if data.classes is None else data.classes
