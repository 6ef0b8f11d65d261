"""Conversion of values to standard JSON."""

from __future__ import annotations

__all__ = ["to_plain"]

import math
from collections.abc import Mapping
from typing import Any


def to_plain(value: Any) -> Any:
    """Return the value with tuples as lists, and infinity and NaN, which standard JSON lacks, as strings that float() reads."""
    if isinstance(value, Mapping):
        return {key: to_plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [to_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
