"""Building blocks of pages: document, section, fold, figures and tiles."""

from __future__ import annotations

__all__ = ["document", "fold", "panels", "section", "tiles"]

from collections.abc import Iterable
from importlib import resources
from string import Template

from privet.report.figures.svg import Figure, inline
from privet.report.headline import KeyNumber
from privet.report.markup import NOTHING, Markup, element, join, text

_SHORT = 9  # characters of a number


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


def fold(title: str, about: str, *content: Markup) -> Markup:
    """Return a section that is closed until its heading is clicked, or nothing if it has no content. It is open in print.

    Args:
        title: heading.
        about: what is inside, in a few words.
        content: content.
    """
    if not any(content):
        return NOTHING
    summary = element("summary", element("h2", text(title)), element("span", text(about), class_="note"))
    return element("details", summary, element("div", *content, class_="folded"), class_="fold")


def panels(*drawn: Figure | None) -> Markup:
    """Return figures side by side, as many as fit, each with its title and caption; nothing if there are none."""
    found = [figure for figure in drawn if figure is not None]
    return element("div", *map(_panel, found), class_="panels pairs" if len(found) == 4 else "panels") if found else NOTHING


def _panel(figure: Figure) -> Markup:
    caption = element("figcaption", text(figure.caption)) if figure.caption else NOTHING
    return element("figure", element("p", text(figure.title), class_="title"), inline(figure.svg, figure.label), caption)


def tiles(numbers: Iterable[KeyNumber]) -> Markup:
    """Return numbers as a list of tiles; nothing if there are none."""
    content = join(map(_tile, numbers))
    return element("dl", content, class_="tiles") if content else NOTHING


def _tile(number: KeyNumber) -> Markup:
    # Words and ranges are longer than numbers, and set smaller.
    value = element("dd", text(number.value), class_="value long" if len(number.value) > _SHORT else "value")
    about = element("dd", text(number.about), class_="about") if number.about else NOTHING
    return element("div", element("dt", text(number.name)), value, about, class_="tile")
