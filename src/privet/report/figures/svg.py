"""Rendering of figures as SVG with text as text, the plotted numbers in the metadata, and identifiers unique on a page."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
from markupsafe import Markup
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Rectangle

from privet.evaluation.colours import BLUE, GREEN, INK, ORANGE, PAPER, PURPLE, RULE

# On the page, each colour becomes a variable of the style sheet, which has lighter values for dark mode.
_VARIABLES = {
    INK: "--ink", RULE: "--rule", PAPER: "--paper", BLUE: "--blue", ORANGE: "--orange", GREEN: "--green", PURPLE: "--purple",
}  # fmt: skip

_FONTS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"

_STYLE: dict[Any, Any] = {  # the type of rc_context requires literal keys; matplotlib checks them
    "svg.fonttype": "none",
    "text.parse_math": False,  # names from files are not formulas
    "font.family": ["sans-serif"],
    "font.sans-serif": ["DejaVu Sans"],  # ships with matplotlib; only measures the text
    "font.size": 8.5,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "axes.facecolor": "none",
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": RULE,
    "grid.linewidth": 0.5,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "hatch.linewidth": 0.7,
    "figure.facecolor": PAPER,
    "savefig.facecolor": "auto",
}
_NO_METADATA: dict[str, str | None] = dict.fromkeys(("Creator", "Date", "Format", "Type"))

# From an SVG file to an inline drawing: drop metadata, namespaces, style and comments; use the page's colours.
_TO_INLINE = (
    (re.compile(r"<metadata>.*?</metadata>\s*", re.DOTALL), ""),
    (re.compile(r'\s+xmlns(?::\w+)?="[^"]*"'), ""),
    (re.compile(r"<defs>\s*<style.*?</style>\s*</defs>\s*", re.DOTALL), ""),
    (re.compile(r"<!--.*?-->\s*", re.DOTALL), ""),
    *((re.compile(colour), f"var({variable})") for colour, variable in _VARIABLES.items()),
)
_IDENTIFIERS = re.compile(r'(\bid="|url\(#|href="#)')


# Width of every figure of a page in inches. A page scales a figure to its column: on a phone, 8.5 points become 12 pixels, and
# where there is room, figures stand side by side.
PANEL = 3.6


@dataclass(frozen=True, slots=True)
class Figure:
    """A rendered figure: its file name without extension, title, SVG, text for screen readers, and caption, if any."""

    name: str
    title: str
    svg: str
    label: str
    caption: str = ""

    @property
    def inline(self) -> Markup:
        """The drawing as an element of an HTML page."""
        return inline(self.svg, self.label)


def render(name: str, drawing: Callable[[Canvas], None], size: tuple[float, float]) -> str:
    """Return a drawing as the text of an SVG file, with its numbers in the metadata's description.

    Coordinates, ticks and identifiers differ between versions of matplotlib and between processors. The numbers do not, so they
    show whether a file is up to date with its results. `name` makes identifiers unique on a page; the size is in inches.
    """
    stream = io.StringIO()
    with mpl.rc_context(_STYLE | {"svg.hashsalt": name}):
        figure = Canvas(figsize=size, layout="constrained")
        drawing(figure)
        described = json.dumps(extract_numbers(figure), allow_nan=False, separators=(",", ":"))
        figure.savefig(stream, format="svg", metadata=_NO_METADATA | {"Description": described})
    written = re.sub(r'font-family: [^;"]*', f"font-family: {_FONTS}", stream.getvalue())
    return _IDENTIFIERS.sub(rf"\g<1>{name}-", written)


def extract_numbers(figure: Canvas) -> list[list[float | None]]:
    """Return the numbers of all marks, in the units of the axes and with six significant digits; None where not finite.

    One list per line (its points, x before y), then per bar (left, bottom, width, height), then per collection such as error
    bars (the vertices of its paths), each in drawing order, axes by axes.
    """
    marks: list[Any] = []
    for axes in figure.axes:
        marks += [line.get_xydata() for line in axes.lines]
        marks += [patch.get_bbox().bounds for patch in axes.patches if isinstance(patch, Rectangle)]
        marks += [[number for path in each.get_paths() for number in np.ravel(path.vertices)] for each in axes.collections]
    return [[float(f"{number:.6g}") if np.isfinite(number) else None for number in np.ravel(mark)] for mark in marks]


def inline(svg: str, label: str) -> Markup:
    """Return the text of an SVG file as an element of an HTML page, with a text for screen readers."""
    body = svg[svg.index("<svg") :]
    for pattern, replacement in _TO_INLINE:
        body = pattern.sub(replacement, body)
    return Markup(body.replace("<svg", Markup('<svg role="img" aria-label="{}"').format(label), 1))
