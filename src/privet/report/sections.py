"""Building blocks of pages: document, section and figure."""

from __future__ import annotations

__all__ = ["document", "figure", "section"]

from importlib import resources
from string import Template

from privet.report.figures.svg import Figure, inline
from privet.report.markup import NOTHING, Markup, element, text


def document(title: str, content: Markup) -> str:
    """Return a complete HTML page without external resources.

    Args:
        title: window title, as text.
        content: body of the page.
    """
    assets = resources.files("privet.report") / "assets"
    return Template((assets / "page.html").read_text(encoding="utf-8")).substitute(
        title=text(title), style=(assets / "style.css").read_text(encoding="utf-8"), content=content
    )


def section(title: str, *content: Markup) -> Markup:
    """Return a section with a heading, or nothing if it has no content."""
    return element("section", element("h2", text(title)), *content) if any(content) else NOTHING


def figure(drawn: Figure | None) -> Markup:
    """Return a figure with its caption, or nothing for None."""
    if drawn is None:
        return NOTHING
    drawing = element("div", inline(drawn.svg, drawn.label), class_="scroll")
    return element("figure", drawing, element("figcaption", text(drawn.caption)))
