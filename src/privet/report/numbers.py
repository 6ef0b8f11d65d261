"""Formatting of numbers for display; ε is always rounded up."""

from __future__ import annotations

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


def format_measurement(value: float) -> str:
    """Format a measured number with four significant digits, and all digits before the decimal point.

    >>> [format_measurement(value) for value in (0.64031, 21512.7, 7950.9, 0.00002)]
    ['0.6403', '21,513', '7,951', '2e-05']
    """
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e12 else f"{value:.4g}"


def format_bytes(number: float) -> str:
    """Format a number of bytes with a decimal prefix and three significant digits.

    >>> format_bytes(812), format_bytes(44_040), format_bytes(2.5e9)
    ('812 B', '44.0 kB', '2.50 GB')
    """
    power = min(4, (len(str(round(number))) - 1) // 3)
    shown = f"{number:.0f}" if power == 0 else f"{number / 1000**power:#.3g}".rstrip(".")
    return f"{shown} {('B', 'kB', 'MB', 'GB', 'TB')[power]}"


def format_duration(seconds: float) -> str:
    """Format a time with its two largest units.

    >>> format_duration(2.17), format_duration(130.2), format_duration(7500)
    ('2.2 s', '2 min 10 s', '2 h 5 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours:,} h {minutes} min" if minutes else f"{hours:,} h"


def format_value(value: Any) -> str:
    """Format a JSON value for a table: thousands separators, and at most six significant digits."""
    match value:
        case None:
            return "none"
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            small = 0 < abs(value) < 1e-3
            return format_power_of_ten(float(f"{value:.4g}")) if small else f"{value:,.6g}"
        case list():
            return ", ".join(map(format_value, value)) or "none"
        case _:
            return str(value)
