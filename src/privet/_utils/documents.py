"""Reading what people write and disks keep: text, JSON and TOML. Whatever is wrong with a document is one kind of error."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

# How an escaped half of a character begins.
_HALF = r"\ud"


class DocumentError(ValueError):
    """A document cannot be read or does not parse; the message says why in a line, without the document's words."""


def read_text(path: Path) -> str:
    """Return a text file.

    Raises:
        DocumentError: it cannot be opened, or is not in UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise DocumentError(error.strerror or type(error).__name__) from None
    except UnicodeDecodeError:
        raise DocumentError("It is not text in UTF-8") from None


def from_json(text: str) -> Any:
    """Return the plain values of a JSON text.

    Raises:
        DocumentError: it does not parse, holds numbers or nesting beyond what a parser takes, or halves of characters, which
            nothing can write down again.
    """
    found = _parsed(json.loads, text)
    if _HALF in text.lower():
        try:
            json.dumps(found, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise DocumentError("It holds halves of characters") from None
    return found


def from_toml(text: str) -> dict[str, Any]:
    """Return the table of a TOML text; errors as for `from_json`."""
    found: dict[str, Any] = _parsed(tomllib.loads, text)
    return found


def _parsed(parse: Callable[[str], Any], text: str) -> Any:
    try:
        return parse(text)
    except (ValueError, RecursionError) as error:  # numbers of thousands of digits are a plain ValueError
        raise DocumentError(f"It does not parse: {' '.join(str(error).split())}") from None
