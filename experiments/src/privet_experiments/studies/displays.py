"""Figures of gradient studies. Each is marked as not private in its title."""

from __future__ import annotations

__all__ = [
    "DeviationDisplay",
    "NormDisplay",
    "ObservationDisplay",
    "SimilarityDisplay",
    "SparsificationDisplay",
    "TrendDisplay",
    "WeightDisplay",
]

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from privet.evaluation.colours import BLUE, GREEN, INK, ORANGE
from privet.evaluation.displays import Display
from privet_experiments.studies.gradients import Observation
from privet_experiments.studies.sparsity import SparsificationEffect
from privet_experiments.studies.symmetry import Deviations
from privet_experiments.studies.ticks import power_of_ten

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MARK = "NOT PRIVATE"
_BINS = 30


@dataclass
class ObservationDisplay(Display):
    """Figure of observations, in the order of their steps."""

    observations: Sequence[Observation]

    def column(self, name: str) -> NDArray[np.float64]:
        """Return one field of all observations, shape (number of observations,)."""
        return np.array([getattr(one, name) for one in self.observations], dtype=np.float64)


class NormDisplay(ObservationDisplay):
    """Histogram of per-example gradient norms over all observations; norms of 0 are left out."""

    def _draw(self, axes: Axes) -> None:
        norms = np.concatenate([one.norms for one in self.observations])
        shown = norms[np.isfinite(norms) & (norms > 0)]
        if len(shown):
            low, high = np.log10(shown.min()), np.log10(shown.max())
            edges = np.logspace(low - 0.02, high + 0.02, _BINS + 1).tolist()
            axes.hist(shown, edges, weights=np.full(len(shown), 1 / len(norms)), color=BLUE, linewidth=0)
            axes.axvline(float(np.median(norms)), color=INK, linewidth=1, linestyle=(0, (4, 3)), label="median")
            axes.legend(frameon=False)
        axes.set(xscale="log", xlabel="per-example gradient norm", ylabel="fraction of examples", title=_MARK)
        axes.xaxis.set_major_formatter(power_of_ten)


class SimilarityDisplay(ObservationDisplay):
    """Histograms of the cosine similarity of the clipped, and of the clipped and noised, mean gradient to the non-private one."""

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
        axes.set(xlabel="cosine similarity to the raw gradient", ylabel="fraction of observations", title=_MARK)
        axes.legend(frameon=False, loc="upper center")


class TrendDisplay(ObservationDisplay):
    """Gradient norms against steps: median and middle 80 % of the examples, and the norm of the mean gradient."""

    def _draw(self, axes: Axes) -> None:
        steps = self.column("step")
        low, median, high = (np.array([np.quantile(one.norms, share) for one in self.observations]) for share in (0.1, 0.5, 0.9))
        axes.fill_between(steps, low, high, color=BLUE, alpha=0.2, linewidth=0)
        axes.plot(steps, median, color=BLUE, linewidth=1.4, label="per example")
        axes.plot(steps, self.column("gradient_norm"), color=ORANGE, linewidth=1.4, linestyle=(0, (5, 2)), label="mean gradient")
        axes.set(yscale="log", xlabel="training step", ylabel="gradient norm", title=_MARK)
        axes.yaxis.set_major_formatter(power_of_ten)
        axes.legend(frameon=False)


class WeightDisplay(ObservationDisplay):
    """Weights of a clipping rule against steps: mean weight, and the fraction of examples that it shortens."""

    def _draw(self, axes: Axes) -> None:
        steps = self.column("step")
        axes.plot(steps, self.column("mean_weight"), color=GREEN, linewidth=1.4, label="mean weight")
        axes.plot(steps, self.column("clipped_share"), color=INK, linewidth=1.4, linestyle=(0, (5, 2)), label="fraction clipped")
        axes.set(ylim=(0, None), xlabel="training step", ylabel="weight, fraction", title=_MARK)
        axes.legend(frameon=False)


@dataclass
class SparsificationDisplay(Display):
    """Effect of masks on noise and signal, with the range over the masks; the curve is √(1−r)."""

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
        axes.set(xlim=(0, 1), ylim=(0, None), xlabel="fraction r of coordinates left out", ylabel="ratio to no mask", title=_MARK)
        axes.legend(frameon=False)


@dataclass
class DeviationDisplay(Display):
    """Deviations of per-example gradients in a random plane; a symmetric cloud is unchanged by a half turn."""

    deviations: Deviations

    def _draw(self, axes: Axes) -> None:
        points = np.array(self.deviations.points)
        limit = 1.08 * float(np.abs(points).max()) or 1.0
        axes.axhline(0, color=INK, linewidth=0.5)
        axes.axvline(0, color=INK, linewidth=0.5)
        axes.plot(*points.T, "o", color=BLUE, markersize=2.5, alpha=0.6, markeredgewidth=0)
        axes.set(
            xlim=(-limit, limit), ylim=(-limit, limit), aspect="equal", xlabel="first direction", ylabel="second direction",
            title=f"{_MARK}, asymmetry {self.deviations.asymmetry:.3f}",
        )  # fmt: skip
