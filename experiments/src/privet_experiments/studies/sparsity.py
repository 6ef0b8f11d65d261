"""Effect of random masks on noise and signal."""

from __future__ import annotations

__all__ = ["SparsificationEffect", "sparsification_effect"]

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from privet.clipping import Rule
from privet.errors import InvalidArgumentError, count, real
from privet.gradients import trainable
from privet.gradients.core.losses import LossFunction
from privet.sparsification.drawing import Selection
from privet_experiments.studies.gradients import Gradients, compute_clipped_gradients, l2_norm
from privet_experiments.studies.marking import NonPrivate


@dataclass(frozen=True, repr=False)
class SparsificationEffect(NonPrivate):
    """Reduction of the noise by masks, and gain of the clipped gradient on the kept coordinates.

    Args:
        rates: fractions r of the coordinates that are left out.
        noise: per rate and mask, ‖m∘z‖/‖z‖ for one draw z of the noise.
        signal: per rate and mask, the norm of the mean of the clipped masked gradients over the norm of the masked mean of the
            clipped gradients: the gain of the kept coordinates, which share the bound with fewer others.
    """

    rates: tuple[float, ...]
    noise: tuple[tuple[float, ...], ...]
    signal: tuple[tuple[float, ...], ...]

    @property
    def law(self) -> tuple[float, ...]:
        """√(1−r) for each rate: the limit of the noise ratio for many coordinates."""
        return tuple(math.sqrt(1 - rate) for rate in self.rates)

    def summary(self) -> str:
        """Return the means over the masks."""
        rows = zip(self.rates, self.noise, self.law, self.signal, strict=True)
        return "; ".join(
            f"r={rate:g}: noise ×{_mean(noise):.4f} (√(1−r) = {law:.4f}), signal on kept coordinates ×{_mean(signal):.3f}"
            for rate, noise, law, signal in rows
        )


def sparsification_effect(
    model: nn.Module,
    loss_fn: LossFunction,
    batch: Any,
    rule: Rule,
    *,
    rates: Sequence[float] = (0.1, 0.3, 0.5, 0.7, 0.9),
    masks: int = 5,
    seed: int = 0,
) -> SparsificationEffect:
    """Measure the effect of random sparsification on the noise and the gradients of a batch. The result is NOT PRIVATE.

    Args:
        model, loss_fn, batch: as for `observe`.
        rule: clipping rule, applied to the masked gradients.
        rates: fractions of the coordinates to leave out, each in [0, 1).
        masks: number of masks per rate, ≥ 1.
        seed: seed of masks and noise.

    Raises:
        InvalidArgumentError: a rate or the number of masks is out of range, or the batch is empty.

    Source:
        "Improving Differentially Private SGD via Randomly Sparsified Gradients", Figures 1c and 1d.
    """
    count("masks", masks)
    for rate in rates:
        if not 0 <= real("rates", rate) < 1:
            raise InvalidArgumentError("rates", rate, "at least 0 and below 1", "It is the fraction of coordinates to leave out.")
    shapes = {name: tuple(parameter.shape) for name, parameter in trainable(model).items()}
    whole = compute_clipped_gradients(model, loss_fn, batch, rule).clipped
    size = sum(value.numel() for value in whole.values())
    generator = torch.Generator().manual_seed(seed)
    noise, signal = [], []
    for rate in rates:
        ratios = []
        for number in range(masks):
            kept = Selection(seed, number, round(rate * size)).masks(shapes)
            normals = {name: torch.randn(shape, generator=generator, dtype=torch.float64) for name, shape in shapes.items()}
            sparse = compute_clipped_gradients(model, loss_fn, batch, rule, masks=kept).clipped
            ratios.append(
                (
                    l2_norm(_apply_masks(normals, kept)) / l2_norm(normals),
                    _divide(l2_norm(sparse), l2_norm(_apply_masks(whole, kept))),
                )
            )
        of_noise, of_signal = zip(*ratios, strict=True)
        noise.append(of_noise)
        signal.append(of_signal)
    return SparsificationEffect(tuple(map(float, rates)), tuple(noise), tuple(signal))


def _apply_masks(gradients: Gradients, kept: Gradients) -> Gradients:
    return {name: value * kept[name].to(value.device) for name, value in gradients.items()}


def _divide(one: float, other: float) -> float:
    return one / other if other else math.nan


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
