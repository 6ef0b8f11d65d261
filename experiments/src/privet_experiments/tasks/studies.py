"""Gradient studies during the runs of a recipe: observations, their steps and their records. NOT PRIVATE."""

from __future__ import annotations

__all__ = ["LOOKS", "STUDIES", "GradientObserver", "moments", "numbers_of", "values"]

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import TensorDataset

from privet.evaluation.bins import to_plain
from privet.gradients.core.losses import LossFunction
from privet.plan import Plan
from privet_experiments.studies import WARNING, Mechanism, Observation, observe

# Number of looks at a run, evenly spaced over the studied epochs.
LOOKS = 100
# Quantiles of the gradient norms that a look records; together, all looks give the distribution.
_QUANTILES = np.linspace(0, 1, 21)
# Study → the numbers that each look records.
STUDIES: Mapping[str, Mapping[str, Callable[[Observation], Any]]] = {
    "scaling_weight": {
        "mean_weight": lambda seen: seen.mean_weight,
        "clipped_share": lambda seen: seen.clipped_share,
    },
    "similarity": {
        "clipped_similarity": lambda seen: seen.clipped_similarity,
        "noised_similarity": lambda seen: seen.noised_similarity,
    },
    "norms": {
        "gradient_norm": lambda seen: seen.gradient_norm,
        "norm": lambda seen: np.quantile(seen.norms, _QUANTILES).tolist(),
    },
}


def numbers_of(studies: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the numbers that the given studies record."""
    return tuple(name for study in studies for name in STUDIES[study])


class GradientObserver:
    """Observe a training's gradients between its steps, on random batches of the expected size.

    Observations change neither the random numbers nor the parameters of the training. They apply the plan's rule and noise to
    plain gradients, without momentum inside the weight and without masks.

    Args:
        studies: names in `STUDIES`; without any, there are no observations and no cost.
        epochs: number of epochs to study, at the end.
        plan: calibrated plan of the training.
    """

    def __init__(
        self, studies: Sequence[str], epochs: float, plan: Plan, model: nn.Module, loss_fn: LossFunction, examples: TensorDataset
    ) -> None:
        self._studies, self._plan, self._model, self._loss_fn, self._examples = tuple(studies), plan, model, loss_fn, examples
        self._at = moments(plan.total_steps, epochs / plan.sampling_rate) if studies else set()
        self._seen: list[dict[str, Any]] = []

    def look(self, step: int) -> None:
        """Observe the gradients if a look is due after this step, counted from 1."""
        if step not in self._at:
            return
        size = min(len(self._examples), max(1, round(self._plan.examples * self._plan.sampling_rate)))
        rows = torch.randperm(len(self._examples), generator=torch.Generator().manual_seed(step))[:size]
        seen = observe(
            self._model, self._loss_fn, self._examples[rows], Mechanism.of(self._plan, step), step=step, seed=step
        )  # fmt: skip
        kept = {name: number(seen) for study in self._studies for name, number in STUDIES[study].items()}
        self._seen.append({"step": step, **kept})

    def kept(self) -> dict[str, Any] | None:
        """Return the observations as plain JSON values, marked as not private; None without a study."""
        if not self._studies:
            return None
        return {"private": False, "warning": WARNING, "studies": list(self._studies), "looks": to_plain(self._seen)}


def moments(total: int, steps: float) -> set[int]:
    """Return the steps after which to look: up to `LOOKS` of the studied steps, including the last.

    >>> sorted(moments(1000, 5))
    [996, 997, 998, 999, 1000]
    """
    number = min(total, max(1, math.ceil(steps)))
    looks = min(LOOKS, number)
    return {total - look * number // looks for look in range(looks)}


def values(study: Mapping[str, Any], number: str) -> np.typing.NDArray[np.float64]:
    """Return a recorded number over all looks; for norms, the quantiles of all looks."""
    return np.array([look[number] for look in study["looks"]], dtype=np.float64).reshape(-1)
