"""Base of all displays. matplotlib is imported when one is drawn; pyplot, which has global state, is never imported."""

from __future__ import annotations

__all__ = ["Display", "draw_intervals", "power_of_ten"]

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Self

from numpy.typing import ArrayLike

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def power_of_ten(value: float, _: float | None = None) -> str:
    """Return the label of a tick on a logarithmic axis as plain text, because reports do not render formulas.

    >>> power_of_ten(0.01), power_of_ten(1.0)
    ('10⁻²', '1')
    """
    exponent = str(round(math.log10(value)))
    return "1" if exponent == "0" else f"10{exponent.translate(_SUPERSCRIPT)}"


def draw_intervals(axes: Axes, places: ArrayLike, low: ArrayLike, high: ArrayLike, colour: str) -> None:
    """Draw intervals as bars with caps. An interval need not contain its point estimate, if it is corrected for bias."""
    axes.vlines(places, low, high, color=colour, linewidth=1)
    for end in (low, high):
        axes.plot(places, end, linestyle="", marker="_", markersize=5, color=colour)


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
        self.ax_ = self._create_axes() if ax is None else ax
        self._draw(self.ax_)
        return self

    def _create_axes(self) -> Axes:
        from matplotlib.figure import Figure

        return Figure(figsize=self.size, layout="constrained").add_subplot()

    @abstractmethod
    def _draw(self, axes: Axes) -> None:
        """Draw on the axes."""
