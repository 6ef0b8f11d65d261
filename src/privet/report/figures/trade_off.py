"""Figure of the trade-off between the error rates of attacks on a composition."""

from __future__ import annotations

__all__ = ["draw_trade_off"]

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure as Canvas

from privet._utils.files import write_text
from privet.accounting.guarantee.tradeoff import PrivacyProfile, false_negative_rate
from privet.errors import InvalidArgumentError
from privet.evaluation.colours import BLUE, INK
from privet.report.figures.svg import render

_POINTS = 401
_SIZE = (3.4, 3.4)


def draw_trade_off(privacy: PrivacyProfile, path: Path | str) -> Path:
    """Draw the lowest false negative rate of any attack at every false positive rate, and write it as an SVG file.

    Args:
        privacy: valid pairs (ε, δ).
        path: path of the SVG file.

    Returns:
        The path.

    Raises:
        InvalidArgumentError: the file cannot be written.
    """
    rates = np.linspace(0.0, 1.0, _POINTS)
    missed = false_negative_rate(privacy, rates)

    def drawing(canvas: Canvas) -> None:
        axes = canvas.subplots()
        axes.plot(rates, missed, color=BLUE, linewidth=1.4, label="lower bound for every attack")
        axes.plot([0, 1], [1, 0], color=INK, linestyle=":", linewidth=0.8, label="random guessing")
        axes.fill_between(rates, missed, 1 - rates, color=BLUE, alpha=0.12, linewidth=0)
        axes.set_xlabel("false positive rate")
        axes.set_ylabel("false negative rate")
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1)
        axes.set_aspect("equal")
        axes.legend(frameon=False)

    try:
        return write_text(Path(path), render("trade-off", drawing, _SIZE))
    except OSError as error:
        raise InvalidArgumentError("figure", str(path), "a file that can be written", f"{error.strerror}.") from None
