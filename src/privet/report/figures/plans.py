"""Figures of plans, as files of their own: ε over the steps by accountant, and the error rates that attacks can reach."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import NullFormatter

from privet._utils.files import write_text
from privet.accounting import compare
from privet.accounting.guarantee.tradeoff import PrivacyProfile, false_negative_rate
from privet.errors import InvalidArgumentError
from privet.evaluation.colours import BLUE, INK, ORANGE
from privet.plan import PrivacyMechanism
from privet.report.figures import accountants
from privet.report.figures.svg import render

_STEPS, _RATES = 24, 401  # points of the curves
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
    """Draw ε over the steps by accountant, and return the path of the SVG file.

    Args:
        plan: plan with its noise and steps, of which an accountant has a finite ε.
        path: path of the SVG file.
    """
    steps = np.unique(np.geomspace(1, plan.total_steps, _STEPS).round().astype(int)).tolist()
    curves: dict[str, list[tuple[int, float]]] = {}
    for number in steps:
        for row in compare(plan, steps=number).rows:
            if row.epsilon is not None and 0 < row.epsilon < math.inf:
                curves.setdefault(row.accountant, []).append((number, row.epsilon))

    if not curves:
        allowed = "larger, because no accountant has a finite ε to draw"
        raise InvalidArgumentError("noise.multiplier", plan.noise_multiplier, allowed, "Without noise, ε is infinite.")

    def drawing(canvas: Canvas) -> None:
        axes = canvas.subplots()
        # The legend lists the lines in the order of their last points.
        for name, points in sorted(curves.items(), key=lambda item: -item[1][-1][1]):
            known, (colour, style) = accountants.describe(name), _LINES[name]
            label = f"{known.name} {known.show(points[-1][1])}" + ("" if known.is_bound else f" ({known.direction})")
            axes.plot(*zip(*points, strict=True), color=colour, linestyle=style, linewidth=1.4, label=label)
        axes.set(xscale="log", yscale="log", xlabel="training step", ylabel=f"ε at δ = {plan.delta:g}")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter("{x:g}")
            axis.set_minor_formatter(NullFormatter())
        axes.grid()
        axes.legend(loc="center left", bbox_to_anchor=(1.02, 0.5), frameon=False)

    return _write(path, render("comparison", drawing, (6.4, 3.2)))


def draw_trade_off(privacy: PrivacyProfile, path: Path | str) -> Path:
    """Draw the lowest false negative rate of any attack at every false positive rate, and return the path of the SVG file.

    Args:
        privacy: valid pairs (ε, δ).
        path: path of the SVG file.
    """
    rates = np.linspace(0.0, 1.0, _RATES)
    missed = false_negative_rate(privacy, rates)

    def drawing(canvas: Canvas) -> None:
        axes = canvas.subplots()
        axes.plot(rates, missed, color=BLUE, linewidth=1.4, label="lower bound for every attack")
        axes.plot([0, 1], [1, 0], color=INK, linestyle=":", linewidth=0.8, label="random guessing")
        axes.fill_between(rates, missed, 1 - rates, color=BLUE, alpha=0.12, linewidth=0)
        axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="false positive rate", ylabel="false negative rate", aspect="equal")
        axes.legend(frameon=False)

    return _write(path, render("trade-off", drawing, (3.4, 3.4)))


def _write(path: Path | str, svg: str) -> Path:
    try:
        return write_text(Path(path), svg)
    except OSError as error:
        raise InvalidArgumentError("figure", str(path), "a file that can be written", cause=f"{error.strerror}") from None
