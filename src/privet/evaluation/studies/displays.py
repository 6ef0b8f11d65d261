"""Figures of gradient studies. Each says on its face that it is not private."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from privet.evaluation.colours import BLUE, GREEN, INK, ORANGE
from privet.evaluation.drawing import Display, power_of_ten
from privet.evaluation.studies.gradients import Observation
from privet.evaluation.studies.sparsity import SparsificationEffect
from privet.evaluation.studies.symmetry import Deviations

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MARK = "NOT PRIVATE"
_BINS = 30


@dataclass
class ObservationDisplay(Display):
    """A display of observations.

    Args:
        observations: at least one, in the order of their steps.
    """

    observations: Sequence[Observation]

    def column(self, name: str) -> NDArray[np.float64]:
        """Return one number of every observation."""
        return np.array([getattr(one, name) for one in self.observations], dtype=np.float64)


class NormDisplay(ObservationDisplay):
    """How the norms of examples' gradients are distributed, all observations together; norms of 0 are left out."""

    def _draw(self, axes: Axes) -> None:
        norms = np.concatenate([one.norms for one in self.observations])
        shown = norms[np.isfinite(norms) & (norms > 0)]
        if len(shown):
            low, high = np.log10(shown.min()), np.log10(shown.max())
            edges = np.logspace(low - 0.02, high + 0.02, _BINS + 1).tolist()
            axes.hist(shown, edges, weights=np.full(len(shown), 1 / len(norms)), color=BLUE, linewidth=0)
            axes.axvline(float(np.median(norms)), color=INK, linewidth=1, linestyle=(0, (4, 3)), label="median")
            axes.legend(frameon=False)
        axes.set(xscale="log", xlabel="norm of an example's gradient", ylabel="share of examples", title=_MARK)
        axes.xaxis.set_major_formatter(power_of_ten)


class SimilarityDisplay(ObservationDisplay):
    """How far the gradient's direction survives: cosines to the gradient without privacy, clipped, and clipped and noised."""

    def _draw(self, axes: Axes) -> None:
        kinds = (("clipped_similarity", "clipped", BLUE), ("noised_similarity", "clipped and noised", ORANGE))
        columns = [self.column(name) for name, *_ in kinds]
        lowest = min(0.0, *(float(np.nanmin([*column, 0.0])) for column in columns))
        edges = np.linspace(lowest, 1.0, _BINS + 1).tolist()
        for column, (_, label, colour) in zip(columns, kinds, strict=True):
            found = column[np.isfinite(column)]
            axes.hist(
                found, edges, weights=np.full(len(found), 1 / len(column)), color=colour, alpha=0.65, linewidth=0, label=label
            )
        axes.set(xlabel="cosine to the raw gradient", ylabel="share of looks", title=_MARK)
        axes.legend(frameon=False, loc="upper center")


class TrendDisplay(ObservationDisplay):
    """How norms change while a model trains: median and middle 80 % of the examples', and that of their mean."""

    def _draw(self, axes: Axes) -> None:
        steps = self.column("step")
        low, median, high = (np.array([np.quantile(one.norms, share) for one in self.observations]) for share in (0.1, 0.5, 0.9))
        axes.fill_between(steps, low, high, color=BLUE, alpha=0.2, linewidth=0)
        axes.plot(steps, median, color=BLUE, linewidth=1.4, label="of an example")
        axes.plot(steps, self.column("gradient_norm"), color=ORANGE, linewidth=1.4, linestyle=(0, (5, 2)), label="of their mean")
        axes.set(yscale="log", xlabel="training step", ylabel="norm of the gradient", title=_MARK)
        axes.yaxis.set_major_formatter(power_of_ten)
        axes.legend(frameon=False)


class WeightDisplay(ObservationDisplay):
    """How a rule weighs gradients while a model trains: mean weight, and the share of examples that it shortens."""

    def _draw(self, axes: Axes) -> None:
        steps = self.column("step")
        axes.plot(steps, self.column("mean_weight"), color=GREEN, linewidth=1.4, label="mean weight")
        axes.plot(steps, self.column("clipped_share"), color=INK, linewidth=1.4, linestyle=(0, (5, 2)), label="share clipped")
        axes.set(ylim=(0, None), xlabel="training step", ylabel="weight, share", title=_MARK)
        axes.legend(frameon=False)


@dataclass
class SparsificationDisplay(Display):
    """What masks do to noise and signal, with the range over the masks; the curve is √(1−r).

    Args:
        effect: the numbers.
    """

    effect: SparsificationEffect

    def _draw(self, axes: Axes) -> None:
        rates = np.linspace(0, 1, 101)
        axes.plot(rates, np.sqrt(1 - rates), color=INK, linewidth=0.8, linestyle=(0, (4, 3)), label="√(1−r)")
        kinds = (("noise", self.effect.noise, BLUE, "o"), ("signal on kept coordinates", self.effect.signal, ORANGE, "s"))
        for label, ratios, colour, marker in kinds:
            values = np.array(ratios)
            mean = values.mean(1)
            spread = [mean - values.min(1), values.max(1) - mean]
            axes.errorbar(self.effect.rates, mean, spread, color=colour, marker=marker, markersize=4, capsize=2, label=label)
        axes.set(xlim=(0, 1), ylim=(0, None), xlabel="part r left out", ylabel="ratio to no mask", title=_MARK)
        axes.legend(frameon=False)


@dataclass
class DeviationDisplay(Display):
    """Deviations of examples' gradients from their mean in a random plane; a symmetric cloud looks the same upside down.

    Args:
        deviations: the numbers.
    """

    deviations: Deviations

    def _draw(self, axes: Axes) -> None:
        points = np.array(self.deviations.points)
        reach = 1.08 * float(np.abs(points).max()) or 1.0
        axes.axhline(0, color=INK, linewidth=0.5)
        axes.axvline(0, color=INK, linewidth=0.5)
        axes.plot(*points.T, "o", color=BLUE, markersize=2.5, alpha=0.6, markeredgewidth=0)
        axes.set(
            xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal", xlabel="first direction", ylabel="second direction",
            title=f"{_MARK}, asymmetry {self.deviations.asymmetry:.3f}",
        )  # fmt: skip
