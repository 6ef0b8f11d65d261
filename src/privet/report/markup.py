"""HTML elements; markup has its own type, so that text cannot enter the page unescaped."""

from __future__ import annotations

__all__ = ["NOTHING", "Markup", "element", "join", "table", "text"]

import html
from collections.abc import Iterable, Sequence
from typing import NewType

Markup = NewType("Markup", str)

NOTHING = Markup("")


def text(value: str) -> Markup:
    """Return text, escaped."""
    return Markup(html.escape(value))


def join(parts: Iterable[Markup], separator: str = "\n") -> Markup:
    """Join the parts, without empty ones."""
    return Markup(separator.join(part for part in parts if part))


def element(name: str, *children: Markup, **attributes: str) -> Markup:
    """Return `<name …>children</name>`.

    Args:
        name: tag name.
        children: content of the element.
        attributes: unescaped values; `class_` stands for class, `aria_label` for aria-label; empty values are left out.
    """
    words = "".join(f' {key.rstrip("_").replace("_", "-")}="{html.escape(value)}"' for key, value in attributes.items() if value)
    return Markup(f"<{name}{words}>{''.join(children)}</{name}>")


def table(head: Sequence[str], rows: Iterable[Sequence[Markup]], class_: str = "") -> Markup:
    """Return a table that scrolls sideways if it is too wide; the first cell of each row is its heading.

    Args:
        head: column headings as text; empty for a table without headings.
        rows: cells as markup, one per column.
        class_: CSS class.
    """
    headings = element("tr", *(element("th", text(word), scope="col") for word in head))
    body = join(element("tr", element("th", row[0], scope="row"), *(element("td", cell) for cell in row[1:])) for row in rows)
    content = [element("thead", headings)] if head else []
    return element("div", element("table", *content, element("tbody", body), class_=class_), class_="scroll")
