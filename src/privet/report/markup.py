"""HTML elements; markup has its own type, so that text cannot enter the page unescaped."""

from __future__ import annotations

__all__ = ["NOTHING", "Markup", "element", "join", "table", "text"]

import html
from collections.abc import Container, Iterable, Sequence
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


def table(head: Sequence[str], rows: Iterable[Sequence[Markup]], class_: str = "", marked: Container[int] = ()) -> Markup:
    """Return a table; the first cell of each row is its heading.

    On a narrow screen, each row of a table with headings becomes a card, in which the headings stand before the cells.

    Args:
        head: column headings as text; empty for a table without headings.
        rows: cells as markup, one per column.
        class_: CSS class.
        marked: numbers of the columns to highlight, from 0.
    """
    kinds = ["varied" if place in marked else "" for place in range(len(head))]
    headings = element(
        "tr", *(element("th", text(word), scope="col", class_=kind) for word, kind in zip(head, kinds, strict=True))
    )
    body = join(_row(row, head or [""] * len(row), kinds or [""] * len(row)) for row in rows)
    content = [element("thead", headings)] if head else []
    classes = " ".join(filter(None, (class_, "cards" if head else "")))
    return element("div", element("table", *content, element("tbody", body), class_=classes), class_="scroll")


def _row(row: Sequence[Markup], head: Sequence[str], kinds: Sequence[str]) -> Markup:
    cells = zip(row[1:], head[1:], kinds[1:], strict=True)
    first = element("th", row[0], scope="row", class_=kinds[0])
    return element("tr", first, *(element("td", cell, class_=kind, data_head=word) for cell, word, kind in cells))
