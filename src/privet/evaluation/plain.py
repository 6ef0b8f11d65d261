"""Values as standard JSON can hold them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def plain(value: Any) -> Any:
    """Return the value with tuples as lists, and with infinity and NaN, which standard JSON has not, as the words float() reads.

    >>> plain({"loss": float("inf"), "table": ((1, 2), (3, 4))})
    {'loss': 'inf', 'table': [[1, 2], [3, 4]]}
    """
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
