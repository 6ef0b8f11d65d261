"""Rounding and formatting of privacy numbers for people, always to the conservative side."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal


def round_up(value: float, digits: int = 4) -> Decimal:
    """Round up to `digits` significant digits, so that a privacy loss is never shown too small."""
    # Decimal(repr) is the number as written: 2.999 stays 2.999 instead of becoming 3.000.
    return Context(prec=digits, rounding=ROUND_CEILING).create_decimal(Decimal(repr(float(value))))


def round_down(value: float, digits: int = 4) -> Decimal:
    """Round down to `digits` significant digits."""
    return Context(prec=digits, rounding=ROUND_FLOOR).create_decimal(Decimal(repr(float(value))))


def format_up(epsilon: float, digits: int = 4) -> str:
    """Format a privacy loss with `digits` significant digits, rounded up; infinity is "∞"."""
    if math.isinf(epsilon):
        return "∞"
    rounded = round_up(epsilon, digits)
    return f"{rounded:f}" if rounded == 0 or 1e-4 <= rounded < 1e6 else f"{rounded:g}"


def format_percent_up(value: float) -> str:
    """Format a probability in per cent with two significant digits, rounded up."""
    return f"{round_up(_percent(value), 2):f}\N{NO-BREAK SPACE}%"


def format_percent_down(value: float) -> str:
    """Format a probability in per cent with two significant digits, rounded down."""
    return f"{round_down(_percent(value), 2):f}\N{NO-BREAK SPACE}%"


def _percent(value: float) -> float:
    """Convert to per cent without noise in the last binary digits, which would push the rounding a whole digit too far."""
    return round(100 * value, 12)
