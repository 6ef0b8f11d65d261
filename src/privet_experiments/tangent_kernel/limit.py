"""Noise and gradient flow: as steps get smaller, every noise leads to the same place."""

from __future__ import annotations

__all__ = ["NoiseLimit", "NoiseLimitDisplay", "noise_limit"]

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor, nn

from privet.clipping import Rule
from privet.errors import InvalidArgumentError, count, positive
from privet.evaluation.colours import INK, SERIES
from privet.evaluation.drawing import Display, power_of_ten
from privet.evaluation.studies.marking import NonPrivate
from privet.gradients import trainable
from privet_experiments.tangent_kernel.flow import gradient_flow
from privet_experiments.tangent_kernel.kernel import Criterion

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, repr=False)
class NoiseLimit(NonPrivate):
    """How far noise leads a training away from where it goes without, after the same time, for smaller and smaller steps.

    Args:
        learning_rates: η, from large to small.
        noise_multipliers: σ > 0.
        distances: for every σ, for every η, for every seed the L2 distance of the parameters from those without noise.
        scale: σ = 1 moves the parameters by scale·√η on average, if nothing pulls them back: sensitivity/n·√(time·d).
    """

    learning_rates: tuple[float, ...]
    noise_multipliers: tuple[float, ...]
    distances: tuple[tuple[tuple[float, ...], ...], ...]
    scale: float

    @property
    def slopes(self) -> tuple[float, ...]:
        """For every σ, by which power of η the root mean square of the distances falls: ½ where the limit is the same for all."""
        sizes = [np.log([_root_mean_square(seeds) for seeds in row]) for row in self.distances]
        return tuple(float(np.polyfit(np.log(self.learning_rates), row, 1)[0]) for row in sizes)


def noise_limit(
    model: nn.Module,
    criterion: Criterion,
    inputs: Any,
    targets: Tensor,
    rule: Rule,
    *,
    time: float,
    learning_rates: Sequence[float],
    noise_multipliers: Sequence[float] = (0.5, 1.0, 4.0),
    seeds: int = 5,
) -> NoiseLimit:
    """Return how far noise leads full-batch steps away, for smaller and smaller steps over the same time.

    A step of learning rate η carries noise of η·σ·sensitivity/n, and time/η of them add up to √(time·η)·σ·sensitivity/n: nothing
    is left of it as η → 0, whatever σ is: the gradient flow is the same for every σ (its privacy
    is not: time/η steps are spent).

    Args:
        model, criterion, inputs, targets: as for `tangent_kernel`.
        rule: that clips, with a sensitivity.
        time: steps times learning rate, > 0.
        learning_rates: at least two.
        noise_multipliers: σ > 0.
        seeds: draws of the noise for each, ≥ 1.

    Source:
        Bu et al. 2023, "On the Convergence and Calibration of Deep Learning with Differential Privacy", Fact 4.1.
    """
    if len(learning_rates) < 2:
        raise InvalidArgumentError("learning_rates", tuple(learning_rates), "at least two")
    rates = tuple(sorted((positive("learning_rates", rate) for rate in learning_rates), reverse=True))
    multipliers = tuple(positive("noise_multipliers", multiplier) for multiplier in noise_multipliers)
    count("seeds", seeds)

    def end(rate: float, multiplier: float, seed: int) -> Tensor:
        steps = max(1, round(positive("time", time) / rate))
        return gradient_flow(
            model, criterion, inputs, targets, rule, learning_rate=rate, steps=steps, noise_multiplier=multiplier, seed=seed
        ).parameters()

    quiet = {rate: end(rate, 0.0, 0) for rate in rates}
    distances = tuple(
        tuple(tuple(float((end(rate, multiplier, seed) - quiet[rate]).norm()) for seed in range(seeds)) for rate in rates)
        for multiplier in multipliers
    )
    size = sum(parameter.numel() for parameter in trainable(model).values())
    return NoiseLimit(rates, multipliers, distances, rule.sensitivity / len(targets) * math.sqrt(time * size))


@dataclass
class NoiseLimitDisplay(Display):
    """Distance from the training without noise against the learning rate, for every σ; dashed is the law σ·scale·√η.

    Args:
        limit: the numbers.
    """

    limit: NoiseLimit

    def _draw(self, axes: Axes) -> None:
        rates = np.array(self.limit.learning_rates)
        rows = zip(self.limit.noise_multipliers, self.limit.distances, _repeated(len(self.limit.distances)), strict=True)
        for multiplier, row, colour in rows:
            mean, low, high = (np.array([how(seeds) for seeds in row]) for how in (_root_mean_square, min, max))
            axes.plot(rates, multiplier * self.limit.scale * np.sqrt(rates), color=INK, linewidth=0.7, linestyle=(0, (4, 3)))
            axes.errorbar(
                rates, mean, [mean - low, high - mean], color=colour, marker="o", markersize=4, capsize=2, linewidth=1.2,
                label=f"σ = {multiplier:g}",
            )  # fmt: skip
        axes.set(xscale="log", yscale="log", xlabel="learning rate η", ylabel="distance from σ = 0", title="NOT PRIVATE")
        axes.set_xticks(rates, [f"{rate:g}" for rate in rates], minor=False)
        axes.xaxis.minorticks_off()
        axes.yaxis.set_major_formatter(power_of_ten)
        axes.legend(frameon=False)


def _root_mean_square(values: Sequence[float]) -> float:
    return math.sqrt(sum(value**2 for value in values) / len(values))


def _repeated(number: int) -> list[str]:
    return [SERIES[index % len(SERIES)] for index in range(number)]
