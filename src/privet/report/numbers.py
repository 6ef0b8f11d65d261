"""Formatting of numbers for display; ε is always rounded up."""

from __future__ import annotations

__all__ = ["format_epsilon", "format_percent", "format_power_of_ten", "format_value"]

import math
from decimal import Decimal
from typing import Any

from privet.accounting.rounding import round_up

_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def format_epsilon(value: float) -> str:
    """Format ε with four significant digits, rounded up; ∞ for infinity."""
    if not math.isfinite(value):
        return "∞" if value > 0 else str(value)
    rounded = round_up(value)
    return f"{rounded:f}" if rounded == 0 or 1e-4 <= abs(rounded) < 1e6 else format_power_of_ten(float(rounded))


def format_power_of_ten(value: float) -> str:
    """Format a small probability exactly, as in 10⁻⁵ or 2.5 × 10⁻⁶."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    mantissa, _, exponent = f"{Decimal(repr(value)).normalize():e}".partition("e")
    power = f"10{str(int(exponent)).translate(_SUPERSCRIPT)}"
    return power if mantissa == "1" else f"{mantissa} × {power}"


def format_percent(share: float) -> str:
    """Format a share in [0, 1] in percent with two decimals and a no-break space."""
    return f"{100 * share:.2f}\N{NO-BREAK SPACE}%"


def format_value(value: Any) -> str:
    """Format a JSON value for a table: integers with thousands separators, other numbers with all their digits."""
    match value:
        case None:
            return "—"
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case list():
            return ", ".join(map(format_value, value)) or "—"
        case _:
            return str(value)
