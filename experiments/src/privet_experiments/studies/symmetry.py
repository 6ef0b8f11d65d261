"""Symmetry of per-example gradients around their mean, in random planes."""

from __future__ import annotations

__all__ = ["Deviations", "deviations"]

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from privet.errors import InvalidArgumentError
from privet.gradients import trainable
from privet.gradients.core.losses import LossFunction
from privet.gradients.engine import tapes
from privet_experiments.studies.gradients import preserve_random_state
from privet_experiments.studies.marking import NonPrivate


@dataclass(frozen=True, repr=False)
class Deviations(NonPrivate):
    """The deviations gᵢ − ḡ of per-example gradients from their mean in a random plane, one point per example."""

    points: tuple[tuple[float, float], ...]

    @property
    def asymmetry(self) -> float:
        """(E‖x + y‖ − E‖x − y‖)/E‖x − y‖ over pairs of distinct points, ≥ −1: its expectation is 0 for a distribution that is
        symmetric around 0, and positive otherwise; NaN if all points are equal.

        Source: Székely, Móri 2001, "A characteristic measure of asymmetry and its application for testing diagonal symmetry".
        """
        places = torch.tensor(self.points, dtype=torch.float64)
        differs = ~torch.eye(len(places), dtype=torch.bool)
        apart, opposite = (torch.cdist(places, sign * places)[differs].mean() for sign in (1, -1))
        return float((opposite - apart) / apart)

    def summary(self) -> str:
        """Return the asymmetry."""
        return f"{len(self.points)} deviations from the mean gradient in a random plane, asymmetry {self.asymmetry:.4f}"


def deviations(model: nn.Module, loss_fn: LossFunction, batch: Any, *, seed: int = 0) -> Deviations:
    """Return the deviations of per-example gradients from their mean, in a random plane. The result is NOT PRIVATE.

    Args:
        model, loss_fn: as for `observe`.
        batch: at least two examples; examples with a non-finite gradient are left out.
        seed: seed of the plane, which is spanned by two independent standard normal directions divided by √d.

    Raises:
        InvalidArgumentError: fewer than two examples have a finite gradient.

    Source:
        "Improving Differentially Private SGD via Randomly Sparsified Gradients", App. F; Chen, Wu, Hong 2020, "Understanding
        Gradient Clipping in Private SGD".
    """
    parameters = trainable(model)
    generator = torch.Generator().manual_seed(seed)
    size = sum(parameter.numel() for parameter in parameters.values())
    plane = {
        name: torch.randn(parameter.numel(), 2, generator=generator, dtype=torch.float64) / size**0.5
        for name, parameter in parameters.items()
    }
    with preserve_random_state(model):
        parts = [_project(tape.gradients(), plane) for _, tape in tapes(model, loss_fn, batch, parameters, "auto", _CHUNK)]
    points = torch.cat(parts)
    points = points[points.isfinite().all(1)]
    if len(points) < 2:
        raise InvalidArgumentError("batch", f"{len(points)} examples", "at least two with a finite gradient")
    return Deviations(tuple(map(tuple, (points - points.mean(0)).tolist())))


# Largest number of examples whose gradients are materialized at once.
_CHUNK = 64


def _project(gradients: dict[str, Tensor], plane: dict[str, Tensor]) -> Tensor:
    parts = [gradients[name].detach().reshape(len(gradients[name]), -1).double().cpu() @ plane[name] for name in plane]
    return torch.stack(parts).sum(0)
