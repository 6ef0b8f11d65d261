"""Conversion of the privacy statement to HTML: paragraphs, lists, headings, `code` and **emphasis** only."""

from __future__ import annotations

__all__ = ["to_markup"]

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from privet.report.markup import Markup, element, join, text

# Element → pattern at the start of a line. A line that matches none continues the line before it.
_MARKS = {
    "ul": re.compile(r"\s*[-*•]\s+(?=\S)"),
    "ol": re.compile(r"\s*\d+[.)]\s+(?=\S)"),
    "h3": re.compile(r"#{1,6}\s+(?=\S)"),
}
_LISTS = frozenset({"ul", "ol"})
_INLINE = (
    (re.compile(r"`([^`]+)`"), r"<code>\1</code>"),
    (re.compile(r"\*\*(.+?)\*\*"), r"<strong>\1</strong>"),
)


@dataclass(frozen=True, slots=True)
class _Block:
    kind: str
    content: str


def to_markup(prose: str) -> Markup:
    """Return plain text with simple Markdown as HTML.

    Args:
        prose: text in which blank lines separate paragraphs; lines that begin with `-`, `*` or a number are list items, lines
            that begin with `#` are headings. HTML in it is escaped.
    """
    return join(_render(kind, list(blocks)) for kind, blocks in groupby(_parse_blocks(prose), lambda block: block.kind))


def _parse_blocks(prose: str) -> Iterator[_Block]:
    current: _Block | None = None
    for line in prose.splitlines():
        kind = next((name for name, mark in _MARKS.items() if mark.match(line)), "p" if line.strip() else "")
        if kind == "p" and current and current.kind != "h3":
            current = _Block(current.kind, f"{current.content} {line.strip()}")
            continue
        if current:
            yield current
        mark = _MARKS.get(kind)
        current = _Block(kind, (mark.sub("", line, count=1) if mark else line).strip()) if kind else None
    if current:
        yield current


def _render(kind: str, blocks: list[_Block]) -> Markup:
    if kind in _LISTS:
        return element(kind, *(element("li", _render_inline(block.content)) for block in blocks))
    return join(element(kind, _render_inline(block.content)) for block in blocks)


def _render_inline(content: str) -> Markup:
    marked = text(content)
    for pattern, replacement in _INLINE:
        marked = Markup(pattern.sub(replacement, marked))
    return marked
