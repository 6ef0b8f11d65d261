"""Conversion of the privacy statement to HTML: paragraphs, lists, headings, `code` and **emphasis** only."""

from __future__ import annotations

__all__ = ["to_markup"]

import re
from itertools import groupby

from markupsafe import Markup, escape

# Element → pattern at the start of a line. A line that matches none continues the line before it.
_MARKS = {
    "ul": re.compile(r"\s*[-*•]\s+(?=\S)"),
    "ol": re.compile(r"\s*\d+[.)]\s+(?=\S)"),
    "h3": re.compile(r"#{1,6}\s+(?=\S)"),
}
_INLINE = (
    (re.compile(r"`([^`]+)`"), r"<code>\1</code>"),
    (re.compile(r"\*\*(.+?)\*\*"), r"<strong>\1</strong>"),
)


def to_markup(prose: str) -> Markup:
    """Return plain text with simple Markdown as HTML.

    Args:
        prose: text in which blank lines separate paragraphs; lines that begin with `-`, `*` or a number are list items, lines
            that begin with `#` are headings. HTML in it is escaped.
    """
    blocks = groupby(_parse_blocks(prose), lambda block: block[0])
    return Markup("\n").join(_render(kind, [_render_inline(words) for _, words in found]) for kind, found in blocks)


def _parse_blocks(prose: str) -> list[tuple[str, str]]:
    """Return element and content of each block."""
    found: list[tuple[str, str]] = []
    goes_on = False
    for line in prose.splitlines():
        kind = next((name for name, mark in _MARKS.items() if mark.match(line)), "p" if line.strip() else "")
        if kind == "p" and goes_on:
            found[-1] = (found[-1][0], f"{found[-1][1]} {line.strip()}")
        elif kind:
            found.append((kind, (_MARKS[kind].sub("", line, count=1) if kind in _MARKS else line).strip()))
        goes_on = kind not in ("", "h3")
    return found


def _render(kind: str, contents: list[Markup]) -> Markup:
    if kind in ("ul", "ol"):
        return Markup(f"<{kind}>") + Markup("").join(map(Markup("<li>{}</li>").format, contents)) + Markup(f"</{kind}>")
    return Markup("\n").join(map(Markup(f"<{kind}>{{}}</{kind}>").format, contents))


def _render_inline(content: str) -> Markup:
    marked = str(escape(content))
    for pattern, replacement in _INLINE:
        marked = pattern.sub(replacement, marked)
    return Markup(marked)
