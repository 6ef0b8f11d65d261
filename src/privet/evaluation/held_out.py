"""Contributions of held-out private entries to a paid estimate, and the estimate that the noised sum gives.

Every entry (example or user) contributes a vector of scores in [0, 1] minus 1/2: centring halves the largest norm of a
contribution, and with it the noise for neighbours that differ by an added or removed entry.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import NormalDist
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset

from privet.errors import InvalidArgumentError, count, positive
from privet.evaluation.interval import noisy_interval
from privet.evaluation.outputs import iterate_outputs
from privet.evaluation.result import Intervals
from privet.units import Users

_USERS_AT_ONCE = 256
_Z = NormalDist().inv_cdf(0.975)


@dataclass(frozen=True)
class Scores:
    """What is measured on each held-out example."""

    names: tuple[str, ...]
    score: Callable[[Tensor, Tensor], Tensor]  # (outputs (B, K), targets (B,)) → (B, d), clipped to [0, 1]
    worst: tuple[float, ...]  # 0 or 1 for each score, in place of what is not a number

    @property
    def bound(self) -> float:
        """Largest L2 norm of one entry's contribution: √d/2, because every score minus 1/2 lies in [−1/2, 1/2]."""
        return math.sqrt(len(self.names)) / 2


def classification_scores() -> Scores:
    """Return whether the largest output is that of the label; a label that is none of the classes counts as wrong."""
    return Scores(("accuracy",), lambda outputs, targets: (outputs.argmax(1) == targets).double()[:, None], (0.0,))


def regression_scores(restore: Callable[[NDArray[np.float64]], NDArray[np.float64]], width: float) -> Scores:
    """Return the absolute error over the width of the target's bounds, and its square.

    `restore` maps scaled outputs or targets (N,) to numbers within the target's bounds, so that no error is larger than `width`
    and clipping loses nothing. A missing target counts as an error of the whole width.
    """
    positive("width", width)

    def score(outputs: Tensor, targets: Tensor) -> Tensor:
        found, expected = (
            torch.from_numpy(restore(given.double().reshape(len(targets)).numpy())) for given in (outputs, targets)
        )
        error = (found - expected).abs() / width
        return torch.stack((error, error.square()), dim=1)

    return Scores(("absolute", "squared"), score, (1.0, 1.0))


def score_entries(model: nn.Module, entries: Dataset[Any], scores: Scores, device: torch.device | str | None = None) -> Tensor:
    """Return the contribution of every held-out entry, (N, d) float64 on the CPU, each within `scores.bound` in L2 norm.

    A user's score is the mean over the user's examples.

    Guarantee:
        All shapes depend on public numbers only, and nothing raises because of a value. An entry's contribution depends on that
        entry and the model alone, as batches have public sizes and torch computes each row of a batch from that row alone.
    """
    if isinstance(entries, Users):
        return _score_users(model, entries, scores, device) - 0.5
    if not isinstance(entries, TensorDataset):
        raise InvalidArgumentError("entries", type(entries).__name__, "a TensorDataset or Users")
    return _score_examples(model, entries, scores, device) - 0.5


def _score_examples(model: nn.Module, examples: TensorDataset, scores: Scores, device: torch.device | str | None) -> Tensor:
    worst = torch.tensor(scores.worst, dtype=torch.float64, device="cpu")
    found = []
    for outputs, targets in iterate_outputs(model, examples, 1024, device):
        given = scores.score(outputs, targets)
        found.append(torch.where(given.isfinite(), given, worst).clamp(0, 1))
    return torch.cat(found)


def _score_users(model: nn.Module, users: Users, scores: Scores, device: torch.device | str | None) -> Tensor:
    means = []
    for start in range(0, len(users), _USERS_AT_ONCE):
        places = torch.arange(start, min(len(users), start + _USERS_AT_ONCE), device="cpu").numpy()
        (inputs, targets), mask = users.read(places)
        rows = TensorDataset(inputs.flatten(0, 1), targets.flatten(0, 1))
        scored = _score_examples(model, rows, scores, device).view(*mask.shape, -1)
        weights = mask.double()[:, :, None]  # a user's missing examples are copies, which do not count
        means.append((scored * weights).sum(1) / weights.sum(1))
    return torch.cat(means)


@dataclass(frozen=True, kw_only=True)
class HeldOutEstimate:
    """The released result of the final model on held-out private entries."""

    task: str  # "classification" or "regression"
    metrics: Mapping[str, float]  # "accuracy", or "mean_absolute_error" and "root_mean_squared_error" in the target's units
    intervals: Intervals = field(default_factory=dict)  # 95 %, for sampling and noise together
    examples: int  # public number of held-out entries
    unit: str  # "example" or "user"
    epsilon: float  # of this release alone, at `delta`
    delta: float
    noise_multiplier: float  # noise over the bound on one entry's contribution

    def to_dict(self) -> dict[str, Any]:
        """Return values for standard JSON, from which `from_dict` restores an equal estimate."""
        values = asdict(self)
        return {**values, "intervals": {name: list(ends) for name, ends in self.intervals.items()}}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> HeldOutEstimate:
        """Return the estimate from the result of `to_dict`."""
        intervals = {name: (float(low), float(high)) for name, (low, high) in values["intervals"].items()}
        return cls(**{**values, "intervals": intervals})


def estimate(
    task: str, noised: Sequence[float], *, examples: int, noise_multiplier: float, width: float = 1.0
) -> tuple[dict[str, float], Intervals]:
    """Return metrics and 95 % intervals (as in `HeldOutEstimate`) from the noised sum of contributions (d,), by post-processing.

    `noise_multiplier` is over the bound on one entry's contribution, and `width` is that of the target's bounds.

    >>> metrics, intervals = estimate("classification", [40.0], examples=100, noise_multiplier=2.0)
    >>> metrics, [round(end, 3) for end in intervals["accuracy"]]
    ({'accuracy': 0.9}, [0.823, 0.948])
    """
    bound = math.sqrt(len(noised)) / 2
    deviation = positive("noise_multiplier", noise_multiplier) * bound / count("examples", examples)
    means = [min(1.0, max(0.0, 0.5 + total / examples)) for total in noised]
    ends = [noisy_interval(mean, examples, deviation) for mean in means]
    if task == "classification":
        return {"accuracy": means[0]}, {"accuracy": ends[0]}
    # For errors e in [0, 1], (mean of e)² ≤ mean of e² ≤ mean of e: noise may break this, which would give an RMSE below the MAE.
    means[1] = min(max(means[1], means[0] ** 2), means[0])
    ends[1] = min(ends[1][0], means[1]), max(ends[1][1], means[1])
    # The two means bound the spread of the absolute errors more tightly than their range does.
    spread = _Z * math.sqrt(max(0.0, ends[1][1] - max(0.0, means[0] - _Z * deviation) ** 2) / examples + deviation**2)
    absolute = max(ends[0][0], means[0] - spread), min(ends[0][1], means[0] + spread)
    return (
        {"mean_absolute_error": width * means[0], "root_mean_squared_error": width * math.sqrt(means[1])},
        {
            "mean_absolute_error": (width * absolute[0], width * absolute[1]),
            "root_mean_squared_error": (width * math.sqrt(ends[1][0]), width * math.sqrt(ends[1][1])),
        },
    )
