"""Output of a command: prose for people, or one JSON object for programs."""

from __future__ import annotations

__all__ = ["JSON", "Json", "answer"]

import json
import math
from collections.abc import Mapping
from typing import Annotated

import typer

JSON = typer.Option("--json", help="Print one JSON object as the last line of standard output.")
Json = Annotated[bool, JSON]


def answer(as_json: bool, values: Mapping[str, object], prose: str) -> None:
    """Print the values as one line of JSON, with infinity as the string "inf", or else the prose."""
    if not as_json:
        print(prose)
        return
    print(json.dumps({key: "inf" if value == math.inf else value for key, value in values.items()}, ensure_ascii=False))
