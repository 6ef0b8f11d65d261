"""One finding with its p-value, and the statistics that several findings share."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats

from privet.audit.probe import Array


@dataclass(frozen=True)
class Check:
    """One question that was asked.

    Args:
        name: what was asked, the same at every audit.
        finding: what was found, in words.
        p_value: how likely so much, or more, would be found if all were as the plan says; 0 or 1 where chance plays no part.
    """

    name: str
    finding: str
    p_value: float


def certain(name: str, finding: str, *, holds: bool) -> Check:
    """Return a finding in which chance plays no part."""
    return Check(name, finding, float(holds))


def two_sided(z: float) -> float:
    """Return the p-value of a standard normal number; a number that is not one has 0."""
    return math.erfc(abs(z) / math.sqrt(2)) if math.isfinite(z) else 0.0


def spread(squares: float, freedom: float, excess: float = 0.0) -> float:
    """Return the p-value of a sum of squares.

    Args:
        squares: Σ z² of numbers that should have variance 1.
        freedom: their number.
        excess: by how much the variance of z² exceeds that of a normal, 2.
    """
    if not math.isfinite(squares):
        return 0.0
    # Of the chi-square laws stretched by a factor, the one with the same mean and variance.
    effective = freedom * 2 / (2 + excess)
    law = stats.chi2(effective)
    value = squares * effective / freedom
    return float(min(1.0, 2 * min(law.cdf(value), law.sf(value))))


def number(found: float, expected: float, variance: float | None = None) -> float:
    """Return the p-value of a count of rare events.

    Args:
        found: how many there were.
        expected: how many there should be.
        variance: of the count; by default, and where few are expected, that of a Poisson law.
    """
    if variance == 0:
        return float(found == expected)
    if expected > 1000:
        return two_sided((found - expected) / math.sqrt(variance or expected))
    law = stats.poisson(expected)
    return float(min(1.0, 2 * min(law.cdf(found), law.sf(found - 1))))


def correlation(one: Array, other: Array) -> float:
    """Return the p-value of the correlation of two rows of standard normal numbers; those left out are zero in both."""
    pairs = np.count_nonzero(one * other)
    return two_sided(float((one * other).sum()) / math.sqrt(pairs)) if pairs else 1.0


def least(p_values: list[float]) -> float:
    """Return the p-value of the smallest of several (Bonferroni)."""
    return min(1.0, min(p_values, default=1.0) * len(p_values))
