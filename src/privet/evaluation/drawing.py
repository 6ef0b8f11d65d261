"""What all displays share. matplotlib is loaded when one is drawn, and pyplot, which keeps state of its own, never."""

from __future__ import annotations

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
    """Return the label of a tick of a logarithmic axis, as text: reports do not read formulas.

    >>> power_of_ten(0.01), power_of_ten(1.0)
    ('10⁻²', '1')
    """
    exponent = str(round(math.log10(value)))
    return "1" if exponent == "0" else f"10{exponent.translate(_SUPERSCRIPT)}"


def draw_intervals(axes: Axes, places: ArrayLike, low: ArrayLike, high: ArrayLike, colour: str) -> None:
    """Draw intervals as bars with ends. They need not hold the point that they are of: a bias may have been taken back."""
    axes.vlines(places, low, high, color=colour, linewidth=1)
    for end in (low, high):
        axes.plot(places, end, linestyle="", marker="_", markersize=5, color=colour)


@dataclass
class Display(ABC):
    """Numbers with a way to draw them, and where they were drawn last."""

    size: ClassVar[tuple[float, float]] = (4.2, 3.6)  # inches, of a figure of its own

    ax_: Axes | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def figure_(self) -> Figure | None:
        """The figure that it was drawn on last; `figure_.savefig("name.svg")` writes it."""
        return None if self.ax_ is None else self.ax_.get_figure(root=True)

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw on the axes, on those of a new figure if None, and return the display with `ax_` and `figure_` set."""
        self.ax_ = self._own_axes() if ax is None else ax
        self._draw(self.ax_)
        return self

    def _own_axes(self) -> Axes:
        from matplotlib.figure import Figure

        return Figure(figsize=self.size, layout="constrained").add_subplot()

    @abstractmethod
    def _draw(self, axes: Axes) -> None:
        """Draw on the axes."""
