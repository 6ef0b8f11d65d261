"""Figure of ε over the steps of a plan, by accountant."""

from __future__ import annotations

__all__ = ["draw_comparison"]

import math
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import NullFormatter

from privet._utils.files import write_text
from privet.accounting import compare
from privet.errors import InvalidArgumentError
from privet.evaluation.colours import BLUE, INK, ORANGE
from privet.plan import PrivacyMechanism
from privet.report.figures import accountants
from privet.report.figures.svg import render

_POINTS = 24
_SIZE = (6.4, 3.2)  # inches; a file of its own, not part of a page
# Blue: bounds for practical use; black: textbook bounds; orange: approximations that are not bounds.
_LINES = {
    "pld": (BLUE, "-"),
    "rdp": (BLUE, "--"),
    "moments": (BLUE, ":"),
    "strong": (INK, "--"),
    "basic": (INK, ":"),
    "edgeworth": (ORANGE, ":"),
    "gdp": (ORANGE, "-."),
}


def draw_comparison(plan: PrivacyMechanism, path: Path | str) -> Path:
    """Draw ε over the steps by accountant and write it as an SVG file.

    Args:
        plan: plan with its noise and steps.
        path: path of the SVG file.

    Returns:
        The path.

    Raises:
        InvalidArgumentError: no accountant has a finite ε, or the file cannot be written.
    """
    steps = np.unique(np.geomspace(1, plan.total_steps, _POINTS).round().astype(int)).tolist()
    curves: dict[str, list[tuple[int, float]]] = {}
    for number in steps:
        for row in compare(plan, steps=number).rows:
            if row.epsilon is not None and 0 < row.epsilon < math.inf:
                curves.setdefault(row.accountant, []).append((number, row.epsilon))

    if not curves:
        raise InvalidArgumentError(
            "noise.multiplier",
            plan.noise_multiplier,
            "larger, because no accountant has a finite ε to draw",
            "Without noise, ε is infinite.",
        )

    def drawing(canvas: Canvas) -> None:
        axes = canvas.subplots()
        # The legend lists the lines in the order of their last points.
        for name, points in sorted(curves.items(), key=lambda item: -item[1][-1][1]):
            known, (colour, style) = accountants.describe(name), _LINES[name]
            label = f"{known.name} {known.show(points[-1][1])}" + ("" if known.is_bound else f" ({known.direction})")
            axes.plot(*zip(*points, strict=True), color=colour, linestyle=style, linewidth=1.4, label=label)
        axes.set_xscale("log")
        axes.set_yscale("log")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter("{x:g}")
            axis.set_minor_formatter(NullFormatter())
        axes.set_xlabel("training step")
        axes.set_ylabel(f"ε at δ = {plan.delta:g}")
        axes.grid()
        axes.legend(loc="center left", bbox_to_anchor=(1.02, 0.5), frameon=False)

    try:
        return write_text(Path(path), render("comparison", drawing, _SIZE))
    except OSError as error:
        raise InvalidArgumentError("figure", str(path), "a file that can be written", f"{error.strerror}.") from None
