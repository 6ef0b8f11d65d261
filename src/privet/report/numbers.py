"""Numbers as people read them. A privacy loss is never shown smaller than it is."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

from privet.accounting.rounding import round_up

_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def epsilon(value: float) -> str:
    """Return a privacy loss with four significant digits, rounded up; ∞ for infinity."""
    if not math.isfinite(value):
        return "∞" if value > 0 else str(value)
    rounded = round_up(value)
    return f"{rounded:f}" if rounded == 0 or 1e-4 <= abs(rounded) < 1e6 else power_of_ten(float(rounded))


def power_of_ten(value: float) -> str:
    """Return a small probability exactly, as in 10⁻⁵ or 2.5 × 10⁻⁶."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    mantissa, _, exponent = f"{Decimal(repr(value)).normalize():e}".partition("e")
    power = f"10{str(int(exponent)).translate(_SUPERSCRIPT)}"
    return power if mantissa == "1" else f"{mantissa} × {power}"


def percent(share: float) -> str:
    """Return a share in [0, 1] in per cent with two decimals, kept on one line."""
    return f"{100 * share:.2f}\N{NO-BREAK SPACE}%"


def plain(value: Any) -> str:
    """Return a JSON value for a table: whole numbers grouped, other numbers with all their digits."""
    match value:
        case None:
            return "—"
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case list():
            return ", ".join(map(plain, value)) or "—"
        case _:
            return str(value)
