"""Figures of calibration that keep their numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

from privet.evaluation.bins import BinTable, class_wise, tabulate, top_label
from privet.evaluation.colours import BLUE, INK, ORANGE, PAPER
from privet.evaluation.drawing import Display, draw_intervals
from privet.evaluation.interval import wilson_interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass
class TableDisplay(Display):
    """A display of a bin table.

    Args:
        table: the numbers.
    """

    table: BinTable


class ReliabilityDisplay(TableDisplay):
    """How often predictions came true against how sure the model was: on the diagonal where it is calibrated.

    Each bin stands at its mean confidence, with the 95 % Wilson interval of the share that came true; the line from it to the
    diagonal is the bin's gap. Empty bins are left out.

    >>> display = ReliabilityDisplay.from_predictions([0, 1], [[0.9, 0.1], [0.6, 0.4]])
    >>> display.table.examples, display.figure_ is display.ax_.get_figure()
    (2, True)
    """

    @classmethod
    def from_predictions(
        cls,
        labels: ArrayLike,
        probabilities: ArrayLike,
        *,
        edges: Sequence[float] | None = None,
        label: int | None = None,
        ax: Axes | None = None,
    ) -> Self:
        """Return the drawn display of a classifier's predictions.

        Args:
            labels: (N,) classes.
            probabilities: (N, K) of every class.
            edges: of the bins; 15 of equal width if None.
            label: the class whose probability is shown; None for that of the predicted class.
            ax: where to draw; on a new figure if None.
        """
        table = top_label(labels, probabilities, edges) if label is None else class_wise(labels, probabilities, edges)[label]
        return cls(table).plot(ax)

    def _draw(self, axes: Axes) -> None:
        rows = zip(self.table.counts, self.table.hits, self.table.confidence, strict=True)
        shown = [(total / count, hits / count, *wilson_interval(hits / count, count)) for count, hits, total in rows if count]
        axes.plot([0, 1], [0, 1], color=INK, linewidth=0.8, linestyle=(0, (4, 3)))
        if shown:
            claimed, share, low, high = zip(*shown, strict=True)
            axes.vlines(claimed, share, claimed, color=ORANGE, linewidth=5, alpha=0.45)
            draw_intervals(axes, claimed, low, high, BLUE)
            axes.plot(claimed, share, "o", color=BLUE, markersize=3.5, clip_on=False)
        axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="confidence", ylabel="share that came true", aspect="equal")


class ConfidenceDisplay(TableDisplay):
    """How many examples fall into each bin: solid those whose prediction was right, hatched those whose was not."""

    xlabel = "confidence"

    @classmethod
    def from_predictions(
        cls, labels: ArrayLike, probabilities: ArrayLike, *, edges: Sequence[float] | None = None, ax: Axes | None = None
    ) -> Self:
        """Return the drawn display; arguments as for `ReliabilityDisplay.from_predictions`."""
        return cls(top_label(labels, probabilities, edges)).plot(ax)

    def _draw(self, axes: Axes) -> None:
        edges, counts, hits = (np.asarray(column) for column in (self.table.edges, self.table.counts, self.table.hits))
        total = max(1, self.table.examples)
        right, wrong = hits / total, (counts - hits) / total
        place: dict[str, Any] = {"x": edges[:-1], "width": np.diff(edges), "align": "edge", "linewidth": 0.5}
        axes.bar(height=right, facecolor=BLUE, edgecolor=PAPER, label="prediction right", **place)
        axes.bar(height=wrong, bottom=right, facecolor=PAPER, edgecolor=ORANGE, hatch="/////", label="wrong", **place)
        axes.set(xlim=(0, 1), xlabel=self.xlabel, ylabel="share of examples")
        axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
        axes.legend(frameon=False, loc="upper left")


class TrueClassDisplay(ConfidenceDisplay):
    """How much probability the true class was given: at the left stand the examples that a model was sure of and wrong about."""

    xlabel = "probability of the true class"

    @classmethod
    def from_predictions(
        cls, labels: ArrayLike, probabilities: ArrayLike, *, edges: Sequence[float] | None = None, ax: Axes | None = None
    ) -> Self:
        """Return the drawn display; arguments as for `ReliabilityDisplay.from_predictions`."""
        targets, claimed = np.asarray(labels), np.asarray(probabilities, dtype=np.float64)
        given = np.take_along_axis(claimed, targets[:, None], axis=1)[:, 0]
        return cls(tabulate(given, claimed.argmax(1) == targets, edges)).plot(ax)
