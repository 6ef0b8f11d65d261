"""HTML as values: what is already markup has its own type, so that text cannot get onto the page unescaped."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import NewType

Markup = NewType("Markup", str)

NOTHING = Markup("")


def text(value: str) -> Markup:
    """Return `value` escaped, to be shown as it is."""
    return Markup(html.escape(value))


def join(parts: Iterable[Markup], separator: str = "\n") -> Markup:
    """Return the parts one after the other, empty ones left out."""
    return Markup(separator.join(part for part in parts if part))


def element(name: str, *children: Markup, **attributes: str) -> Markup:
    """Return `<name …>children</name>`.

    Args:
        name: the tag.
        children: its content.
        attributes: unescaped values; `class_` is class, `aria_label` is aria-label; empty ones are left out.
    """
    words = "".join(f' {key.rstrip("_").replace("_", "-")}="{html.escape(value)}"' for key, value in attributes.items() if value)
    return Markup(f"<{name}{words}>{''.join(children)}</{name}>")


def table(head: Sequence[str], rows: Iterable[Sequence[Markup]], class_: str = "") -> Markup:
    """Return a table that scrolls sideways where it does not fit; the first cell of a row is its heading.

    Args:
        head: column headings as text; none for a table that needs none.
        rows: cells as markup, as many in every row as there are columns.
        class_: how the style sheet tells this table from others.
    """
    headings = element("tr", *(element("th", text(word), scope="col") for word in head))
    body = join(element("tr", element("th", row[0], scope="row"), *(element("td", cell) for cell in row[1:])) for row in rows)
    content = [element("thead", headings)] if head else []
    return element("div", element("table", *content, element("tbody", body), class_=class_), class_="scroll")
