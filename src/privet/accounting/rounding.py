"""Numbers about privacy as people read them: never on the flattering side."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal


def rounded_up(value: float, digits: int = 4) -> Decimal:
    """Return so many significant digits that are never less than the value: a privacy loss is not shown smaller than it is."""
    # Decimal(repr) is the number as it is written: 2.999 stays 2.999 instead of becoming 3.000.
    return Context(prec=digits, rounding=ROUND_CEILING).create_decimal(Decimal(repr(float(value))))


def rounded_down(value: float, digits: int = 4) -> Decimal:
    """Return so many significant digits that are never more than the value."""
    return Context(prec=digits, rounding=ROUND_FLOOR).create_decimal(Decimal(repr(float(value))))


def legible(epsilon: float, digits: int = 4) -> str:
    """Return a privacy loss with so many digits, rounded up; ∞ for infinity.

    >>> legible(1683.2), legible(2.99901), legible(4.21234e11)
    ('1684', '3.000', '4.213e+11')
    """
    if math.isinf(epsilon):
        return "∞"
    rounded = rounded_up(epsilon, digits)
    return f"{rounded:f}" if rounded == 0 or 1e-4 <= rounded < 1e6 else f"{rounded:g}"


def share_up(value: float) -> str:
    r"""Return a probability in per cent, two digits, rounded up.

    >>> [share_up(value).replace("\N{NO-BREAK SPACE}", " ") for value in (0.11331, 0.0026088, 1.0)]
    ['12 %', '0.27 %', '100 %']
    """
    return f"{rounded_up(_percent(value), 2):f}\N{NO-BREAK SPACE}%"


def share_down(value: float) -> str:
    """Return a probability in per cent, two digits, rounded down."""
    return f"{rounded_down(_percent(value), 2):f}\N{NO-BREAK SPACE}%"


def _percent(value: float) -> float:
    """Return per cent without the rounding of the last binary digits, which is in nobody's favour."""
    return round(100 * value, 12)
