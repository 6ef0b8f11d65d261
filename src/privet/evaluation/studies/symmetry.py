"""Whether examples' gradients lie symmetrically around their mean, as seen in random planes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from privet.errors import InvalidArgumentError
from privet.evaluation.studies.gradients import unmoved_generators
from privet.evaluation.studies.marking import NonPrivate
from privet.gradients import trainable
from privet.gradients.core.losses import LossFunction
from privet.gradients.engine import tapes


@dataclass(frozen=True, repr=False)
class Deviations(NonPrivate):
    """The deviations gᵢ − ḡ of examples' gradients from their mean, in a random plane.

    Args:
        points: the deviations' coordinates, one pair for each example.
    """

    points: tuple[tuple[float, float], ...]

    @property
    def asymmetry(self) -> float:
        """(E‖x + y‖ − E‖x − y‖)/E‖x − y‖ over pairs of different points, from −1: 0 in expectation if they lie symmetrically
        around 0, and above 0 if not; NaN if all are the same.

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
    """Return how examples' gradients deviate from their mean, in a random plane. The result is NOT PRIVATE.

    Args:
        model, loss_fn: as for `observe`.
        batch: at least two examples; those whose gradient is not finite are left out.
        seed: of the plane: two independent standard normal directions, divided by √d.

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
    with unmoved_generators(model):
        parts = [_projected(tape.gradients(), plane) for _, tape in tapes(model, loss_fn, batch, parameters, "auto", _PART)]
    points = torch.cat(parts)
    points = points[points.isfinite().all(1)]
    if len(points) < 2:
        raise InvalidArgumentError("batch", f"{len(points)} examples", "at least two with a finite gradient")
    return Deviations(tuple(map(tuple, (points - points.mean(0)).tolist())))


# Most examples whose gradients are formed at once.
_PART = 64


def _projected(gradients: dict[str, Tensor], plane: dict[str, Tensor]) -> Tensor:
    parts = [gradients[name].detach().reshape(len(gradients[name]), -1).double().cpu() @ plane[name] for name in plane]
    return torch.stack(parts).sum(0)
