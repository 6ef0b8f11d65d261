"""Ticks of logarithmic axes."""

from __future__ import annotations

__all__ = ["power_of_ten"]

import math

_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def power_of_ten(value: float, _: float | None = None) -> str:
    """Return the label of a tick on a logarithmic axis as plain text, because reports do not render formulas.

    >>> power_of_ten(0.01), power_of_ten(1.0)
    ('10⁻²', '1')
    """
    exponent = str(round(math.log10(value)))
    return "1" if exponent == "0" else f"10{exponent.translate(_SUPERSCRIPT)}"
