"""The guarantee's words as HTML: paragraphs, lists, headings, `code` and **emphasis**, nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from privet.report.markup import Markup, element, join, text

# What a line begins with → what it is. Whatever matches nothing goes on with the line before it.
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
class _Piece:
    kind: str
    words: str


def to_markup(words: str) -> Markup:
    """Return plain text with Markdown's simplest marks as HTML.

    Args:
        words: blank lines separate paragraphs; lines that begin with `-`, `*` or a number are list items, lines that
            begin with `#` are headings. HTML in it is shown as text.
    """
    return join(_block(kind, list(pieces)) for kind, pieces in groupby(_pieces(words), lambda piece: piece.kind))


def _pieces(words: str) -> Iterator[_Piece]:
    open_piece: _Piece | None = None
    for line in words.splitlines():
        kind = next((name for name, mark in _MARKS.items() if mark.match(line)), "p" if line.strip() else "")
        if kind == "p" and open_piece and open_piece.kind != "h3":
            open_piece = _Piece(open_piece.kind, f"{open_piece.words} {line.strip()}")
            continue
        if open_piece:
            yield open_piece
        mark = _MARKS.get(kind)
        open_piece = _Piece(kind, (mark.sub("", line, count=1) if mark else line).strip()) if kind else None
    if open_piece:
        yield open_piece


def _block(kind: str, pieces: list[_Piece]) -> Markup:
    if kind in _LISTS:
        return element(kind, *(element("li", _inline(piece.words)) for piece in pieces))
    return join(element(kind, _inline(piece.words)) for piece in pieces)


def _inline(words: str) -> Markup:
    marked = text(words)
    for pattern, replacement in _INLINE:
        marked = Markup(pattern.sub(replacement, marked))
    return marked
