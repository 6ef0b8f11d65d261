"""Result of a check with its p-value, and statistics for checks."""

from __future__ import annotations

__all__ = [
    "Check",
    "bonferroni",
    "correlation_p_value",
    "count_p_value",
    "deterministic_check",
    "two_sided_p_value",
    "variance_p_value",
]

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats

from privet.audit.probe import Array


@dataclass(frozen=True)
class Check:
    """The result of a check.

    Args:
        name: name of the check, the same in every audit.
        finding: the finding in words.
        p_value: probability of a finding at least as extreme if the plan is kept; 0 or 1 for a deterministic check.
    """

    name: str
    finding: str
    p_value: float


def deterministic_check(name: str, finding: str, *, holds: bool) -> Check:
    """Return the result of a deterministic check."""
    return Check(name, finding, float(holds))


def two_sided_p_value(z: float) -> float:
    """Return the two-sided p-value of a standard normal statistic; 0 if it is not finite."""
    return math.erfc(abs(z) / math.sqrt(2)) if math.isfinite(z) else 0.0


def variance_p_value(squares: float, freedom: float, excess: float = 0.0) -> float:
    """Return the two-sided p-value of a sum of squares.

    Args:
        squares: Σ z² of numbers z that should have variance 1.
        freedom: number of degrees of freedom.
        excess: variance of z² minus 2, its variance for a normal z.
    """
    if not math.isfinite(squares):
        return 0.0
    # Scaled chi-square distribution with the same mean and variance.
    effective = freedom * 2 / (2 + excess)
    law = stats.chi2(effective)
    value = squares * effective / freedom
    return float(min(1.0, 2 * min(law.cdf(value), law.sf(value))))


def count_p_value(found: float, expected: float, variance: float | None = None) -> float:
    """Return the two-sided p-value of a count.

    Args:
        found: observed count.
        expected: expected count.
        variance: variance of the count; None, or a small expected count, for a Poisson distribution.
    """
    if variance == 0:
        return float(found == expected)
    if expected > 1000:
        return two_sided_p_value((found - expected) / math.sqrt(variance or expected))
    law = stats.poisson(expected)
    return float(min(1.0, 2 * min(law.cdf(found), law.sf(found - 1))))


def correlation_p_value(one: Array, other: Array) -> float:
    """Return the p-value of the correlation of two arrays of standard normal numbers; pairs that contain a zero are ignored."""
    pairs = np.count_nonzero(one * other)
    return two_sided_p_value(float((one * other).sum()) / math.sqrt(pairs)) if pairs else 1.0


def bonferroni(p_values: list[float]) -> float:
    """Return the p-value of the smallest of several p-values, by Bonferroni's correction."""
    return min(1.0, min(p_values, default=1.0) * len(p_values))
