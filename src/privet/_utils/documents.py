"""Reading of text, JSON and TOML documents, with a single kind of error."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

# Start of an escaped surrogate.
_HALF = r"\ud"


class DocumentError(ValueError):
    """A document cannot be read or parsed; the message says why in one line, without quoting the document."""


def read_text(path: Path) -> str:
    """Read a UTF-8 text file; DocumentError if that fails."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise DocumentError(error.strerror or type(error).__name__) from None
    except UnicodeDecodeError:
        raise DocumentError("It is not UTF-8 text") from None


def from_json(text: str) -> Any:
    """Parse a JSON text; DocumentError also for unpaired surrogates, which cannot be written back."""
    found = _parse(json.loads, text)
    if _HALF in text.lower():
        try:
            json.dumps(found, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise DocumentError("It contains unpaired surrogates") from None
    return found


def from_toml(text: str) -> dict[str, Any]:
    """Parse a TOML text; errors as for `from_json`."""
    found: dict[str, Any] = _parse(tomllib.loads, text)
    return found


def _parse(parse: Callable[[str], Any], text: str) -> Any:
    try:
        return parse(text)
    except (ValueError, RecursionError) as error:  # numbers with thousands of digits raise a plain ValueError
        raise DocumentError(f"It does not parse: {' '.join(str(error).split())}") from None


def replace_former_values(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return a plan's dictionary with today's words for values that older files contain."""
    noise = plan.get("noise")
    if isinstance(noise, dict) and noise.get("deviation") == "follows the bound":
        return {**plan, "noise": {**noise, "deviation": "relative"}}
    return dict(plan)
