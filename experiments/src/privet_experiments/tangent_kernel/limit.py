"""Gradient flow as the limit of noisy training: with smaller steps, every noise multiplier leads to the same parameters."""

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
from privet.evaluation.displays import Display
from privet.gradients import trainable
from privet_experiments.studies.marking import NonPrivate
from privet_experiments.studies.ticks import power_of_ten
from privet_experiments.tangent_kernel.flow import gradient_flow
from privet_experiments.tangent_kernel.kernel import Criterion

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, repr=False)
class NoiseLimit(NonPrivate):
    """Distances between trainings with and without noise after the same time, for decreasing step sizes.

    Args:
        learning_rates: η, in decreasing order.
        noise_multipliers: σ > 0.
        distances: L2 distance of the parameters from those without noise, indexed by σ, η and seed.
        scale: sensitivity/n·√(time·d): without a restoring gradient, σ = 1 moves the parameters by scale·√η on average.
    """

    learning_rates: tuple[float, ...]
    noise_multipliers: tuple[float, ...]
    distances: tuple[tuple[tuple[float, ...], ...], ...]
    scale: float

    @property
    def slopes(self) -> tuple[float, ...]:
        """For every σ, the power of η with which the root mean square distance falls: ½ if all have the same limit."""
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
    """Return the distances that noise causes in full-batch training, for decreasing step sizes over the same time.

    A step with learning rate η has noise η·σ·sensitivity/n, and the noise of time/η steps adds up to √(time·η)·σ·sensitivity/n.
    It vanishes as η → 0, so the gradient flow is the same for every σ. Privacy is not: it decreases with the time/η steps.

    Args:
        model, criterion, inputs, targets: as for `tangent_kernel`.
        rule: clipping rule with a sensitivity.
        time: number of steps times learning rate, > 0.
        learning_rates: at least two.
        noise_multipliers: σ > 0.
        seeds: number of noise draws for each, ≥ 1.

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
    """Distance from the training without noise over the learning rate, for every σ; the dashed line is σ·scale·√η."""

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
