"""Gradient studies within the runs of a recipe: what they observe, when, and what they keep. All of it is NOT PRIVATE."""

from __future__ import annotations

__all__ = ["LOOKS", "STUDIES", "Watch", "moments", "numbers_of", "values"]

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import TensorDataset

from privet.evaluation.plain import to_plain
from privet.evaluation.studies import WARNING, Mechanism, Observation, observe
from privet.gradients.core.losses import LossFunction
from privet.plan import Plan

# Number of looks at a run, spread evenly over the epochs that are studied.
LOOKS = 100
# Of the norms of a batch's gradients, these are kept: of all looks together they give the distribution.
_QUANTILES = np.linspace(0, 1, 21)
# Study → the numbers that each look keeps for it.
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
    """Return the names of the numbers that some studies keep."""
    return tuple(name for study in studies for name in STUDIES[study])


class Watch:
    """Looks at a training's gradients on random batches of its expected size, between its steps.

    Nothing of it goes back into the training, whose random numbers and parameters stay as they are. It sees the plan's rule and
    noise on plain gradients; momentum inside the weight and masks are no part of it.

    Args:
        studies: names in `STUDIES`; with none, nothing is observed, at no cost.
        epochs: how many of the last ones are studied.
        plan: of the training, calibrated.
        model: that is trained.
        loss_fn: (model, batch) → (B,) losses.
        examples: that are trained on.
    """

    def __init__(
        self, studies: Sequence[str], epochs: float, plan: Plan, model: nn.Module, loss_fn: LossFunction, examples: TensorDataset
    ) -> None:
        self._studies, self._plan, self._model, self._loss_fn, self._examples = tuple(studies), plan, model, loss_fn, examples
        self._at = moments(plan.total_steps, epochs / plan.sampling_rate) if studies else set()
        self._seen: list[dict[str, Any]] = []

    def look(self, step: int) -> None:
        """Look, if this step is one of those to observe.

        Args:
            step: that was taken, from 1.
        """
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
        """Return what was seen as plain JSON values, marked; None if no study was requested."""
        if not self._studies:
            return None
        return {"private": False, "warning": WARNING, "studies": list(self._studies), "looks": to_plain(self._seen)}


def moments(total: int, steps: float) -> set[int]:
    """Return the steps after which to look: up to `LOOKS` of the last so many, the very last included.

    >>> sorted(moments(1000, 5))
    [996, 997, 998, 999, 1000]
    """
    number = min(total, max(1, math.ceil(steps)))
    looks = min(LOOKS, number)
    return {total - look * number // looks for look in range(looks)}


def values(study: Mapping[str, Any], number: str) -> np.typing.NDArray[np.float64]:
    """Return one number of all looks of a study that was kept; of norms, the quantiles of all looks."""
    return np.array([look[number] for look in study["looks"]], dtype=np.float64).reshape(-1)
