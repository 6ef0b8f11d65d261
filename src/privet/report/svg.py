"""Figures as SVG: text stays text, the same figure gives the same bytes, and several fit on one page."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure as Canvas

from privet.evaluation.colours import BLUE, GREEN, INK, ORANGE, PAPER, PURPLE, RULE
from privet.report.markup import Markup, element

# On the page each colour becomes a variable of the style sheet, which has lighter ones for a dark screen.
_VARIABLES = {
    INK: "--ink", RULE: "--rule", PAPER: "--paper", BLUE: "--blue", ORANGE: "--orange", GREEN: "--green", PURPLE: "--purple",
}  # fmt: skip

_FONTS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"

_STYLE: dict[Any, Any] = {  # rc_context wants the keys as literals; matplotlib checks them
    "svg.fonttype": "none",
    "text.parse_math": False,  # names from files are words, not formulas
    "font.family": ["sans-serif"],
    "font.sans-serif": ["DejaVu Sans"],  # ships with matplotlib: measures the text, is not what is shown
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

# From an SVG file to a drawing inside a page: no namespaces, style and comments of its own, the page's colours.
_TO_INLINE = (
    (re.compile(r'\s+xmlns(?::\w+)?="[^"]*"'), ""),
    (re.compile(r"<defs>\s*<style.*?</style>\s*</defs>\s*", re.DOTALL), ""),
    (re.compile(r"<!--.*?-->\s*", re.DOTALL), ""),
    *((re.compile(colour), f"var({variable})") for colour, variable in _VARIABLES.items()),
)
_IDENTIFIERS = re.compile(r'(\bid="|url\(#|href="#)')


WIDTH = 6.4  # inches; all figures share it, so that their text has one size on the page


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure, drawn.

    Args:
        name: its file name without ending.
        svg: the text of its file.
        label: what it shows, for those who cannot see it.
        caption: what to know when reading it.
    """

    name: str
    svg: str
    label: str
    caption: str


def render(name: str, drawing: Callable[[Canvas], None], size: tuple[float, float]) -> str:
    """Return a drawing as the text of an SVG file.

    Args:
        name: what sets its identifiers apart from those of other figures on the same page; a word.
        drawing: draws on the figure that it is given.
        size: width and height in inches.
    """
    stream = io.StringIO()
    with mpl.rc_context(_STYLE | {"svg.hashsalt": name}):
        figure = Canvas(figsize=size, layout="constrained")
        drawing(figure)
        figure.savefig(stream, format="svg", metadata=_NO_METADATA)
    written = re.sub(r'font-family: [^;"]*', f"font-family: {_FONTS}", stream.getvalue())
    return _IDENTIFIERS.sub(rf"\g<1>{name}-", written)


def inline(svg: str, label: str) -> Markup:
    """Return the text of an SVG file as an element of an HTML page.

    Args:
        svg: what `render` returned.
        label: what it shows, in a sentence, for those who cannot see it.
    """
    body = svg[svg.index("<svg") :]
    for pattern, replacement in _TO_INLINE:
        body = pattern.sub(replacement, body)
    opening = element("svg", role="img", aria_label=label).removesuffix("></svg>")
    return Markup(body.replace("<svg", opening, 1))
