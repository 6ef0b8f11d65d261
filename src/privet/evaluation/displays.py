"""Figures of calibration, with their data. matplotlib is imported when one is drawn; pyplot, which has global state, never."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from privet.evaluation.bins import BinTable, tabulate, top_label
from privet.evaluation.colours import BLUE, INK, ORANGE, PAPER
from privet.evaluation.interval import wilson_interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass
class Display(ABC):
    """Data of a figure, with a method to draw it and the axes of the last drawing."""

    size: ClassVar[tuple[float, float]] = (4.2, 3.6)  # inches, of a new figure

    ax_: Axes | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def figure_(self) -> Figure | None:
        """The figure of the last drawing; `figure_.savefig("name.svg")` writes it."""
        return None if self.ax_ is None else self.ax_.get_figure(root=True)

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw on the axes, or on a new figure if None, and return the display with `ax_` and `figure_` set."""
        if ax is None:
            from matplotlib.figure import Figure

            ax = Figure(figsize=self.size, layout="constrained").add_subplot()
        self.ax_ = ax
        self._draw(ax)
        return self

    @abstractmethod
    def _draw(self, axes: Axes) -> None:
        """Draw on the axes."""


@dataclass
class TableDisplay(Display):
    """Figure of a bin table."""

    table: BinTable

    @classmethod
    def from_predictions(
        cls, labels: ArrayLike, probabilities: ArrayLike, *, edges: Sequence[float] | None = None, ax: Axes | None = None
    ) -> Self:
        """Return the drawn display of a classifier's predictions, (N,) labels and (N, K) probabilities; by default of 15 bins."""
        return cls(cls._tabulate(labels, probabilities, edges)).plot(ax)

    @classmethod
    def _tabulate(cls, labels: ArrayLike, probabilities: ArrayLike, edges: Sequence[float] | None) -> BinTable:
        return top_label(labels, probabilities, edges)


class ReliabilityDisplay(TableDisplay):
    """Reliability diagram: accuracy against confidence; a calibrated model lies on the diagonal.

    Each bin is drawn at its mean confidence, with the 95 % Wilson interval of its accuracy; the line to the diagonal is the
    bin's gap. Empty bins are left out. `ReliabilityDisplay(class_wise(labels, probabilities)[0]).plot()` shows the first class.

    >>> display = ReliabilityDisplay.from_predictions([0, 1], [[0.9, 0.1], [0.6, 0.4]])
    >>> display.table.examples, display.figure_ is display.ax_.get_figure()
    (2, True)
    """

    def _draw(self, axes: Axes) -> None:
        rows = zip(self.table.counts, self.table.hits, self.table.confidence, strict=True)
        shown = [(total / count, hits / count, *wilson_interval(hits / count, count)) for count, hits, total in rows if count]
        axes.plot([0, 1], [0, 1], color=INK, linewidth=0.8, linestyle=(0, (4, 3)))
        if shown:
            claimed, share, low, high = zip(*shown, strict=True)
            axes.vlines(claimed, share, claimed, color=ORANGE, linewidth=5, alpha=0.45)
            # Bars with caps: an interval need not contain its point estimate, if it is corrected for bias.
            axes.vlines(claimed, low, high, color=BLUE, linewidth=1)
            for end in (low, high):
                axes.plot(claimed, end, linestyle="", marker="_", markersize=5, color=BLUE)
            axes.plot(claimed, share, "o", color=BLUE, markersize=3.5, clip_on=False)
        axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="confidence", ylabel="frequency", aspect="equal")


class ConfidenceDisplay(TableDisplay):
    """Histogram of confidence: solid for correct predictions, hatched for wrong ones."""

    xlabel = "confidence"

    def _draw(self, axes: Axes) -> None:
        edges, counts, hits = (np.asarray(column) for column in (self.table.edges, self.table.counts, self.table.hits))
        total = max(1, self.table.examples)
        right, wrong = hits / total, (counts - hits) / total
        place: dict[str, Any] = {"x": edges[:-1], "width": np.diff(edges), "align": "edge", "linewidth": 0.5}
        axes.bar(height=right, facecolor=BLUE, edgecolor=PAPER, label="correct", **place)
        axes.bar(height=wrong, bottom=right, facecolor=PAPER, edgecolor=ORANGE, hatch="/////", label="wrong", **place)
        axes.set(xlim=(0, 1), xlabel=self.xlabel, ylabel="fraction of examples")
        axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
        axes.legend(frameon=False, loc="upper left")


class TrueClassDisplay(ConfidenceDisplay):
    """Histogram of the probability of the true class; confident errors are on the left."""

    xlabel = "probability of the true class"

    @classmethod
    def _tabulate(cls, labels: ArrayLike, probabilities: ArrayLike, edges: Sequence[float] | None) -> BinTable:
        targets, claimed = np.asarray(labels), np.asarray(probabilities, dtype=np.float64)
        given = np.take_along_axis(claimed, targets[:, None], axis=1)[:, 0]
        return tabulate(given, claimed.argmax(1) == targets, edges)
