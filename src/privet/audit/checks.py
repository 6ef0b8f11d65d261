"""Result of a check with its p-value, statistics for checks, and the text and values of certificates."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from scipy.special import chdtr, chdtrc, pdtr, pdtrc

from privet.audit.probe import Array

ALPHA = 1e-6


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


def add_prefix(family: str, checks: Iterable[Check]) -> list[Check]:
    """Return checks with the names "family: name"."""
    return [replace(check, name=f"{family}: {check.name}") for check in checks]


def find_rejected(checks: Sequence[Check], alpha: float = ALPHA) -> tuple[str, ...]:
    """Return the names of the failed checks; correct code fails any of them with probability α at most."""
    return tuple(check.name for check in checks if not check.p_value >= alpha / len(checks))


def two_sided_p_value(z: float) -> float:
    """Return the two-sided p-value of a standard normal statistic; 0 if it is not finite."""
    return math.erfc(abs(z) / math.sqrt(2)) if math.isfinite(z) else 0.0


def variance_p_value(squares: float, freedom: float, excess: float = 0.0) -> float:
    """Return the two-sided p-value of Σ z² for z of variance 1 with this excess kurtosis."""
    if not math.isfinite(squares):
        return 0.0
    # Scaled chi-square distribution with the same mean and variance.
    effective = freedom * 2 / (2 + excess)
    value = squares * effective / freedom
    return float(min(1.0, 2 * min(chdtr(effective, value), chdtrc(effective, value))))


def count_p_value(found: float, expected: float, variance: float | None = None) -> float:
    """Return the two-sided p-value of a count; Poisson if no variance is given, or if the expected count is small."""
    if variance == 0:
        return float(found == expected)
    if expected > 1000:
        return two_sided_p_value((found - expected) / math.sqrt(variance or expected))
    return float(min(1.0, 2 * min(pdtr(found, expected), pdtrc(found - 1, expected) if found else 1.0)))


def correlation_p_value(one: Array, other: Array) -> float:
    """Return the p-value of the correlation of two arrays of standard normal numbers; pairs that contain a zero are ignored."""
    pairs = np.count_nonzero(one * other)
    return two_sided_p_value(float((one * other).sum()) / math.sqrt(pairs)) if pairs else 1.0


def bonferroni(p_values: list[float]) -> float:
    """Return the p-value of the smallest of several p-values, by Bonferroni's correction."""
    return min(1.0, min(p_values, default=1.0) * len(p_values))


@dataclass(frozen=True)
class Certificate:
    """The result of an audit, as values for programs."""

    def to_dict(self) -> dict[str, Any]:
        """Return the result as values for JSON, with infinity as the string "inf"."""
        values = {name: "inf" if value == math.inf else value for name, value in asdict(self).items()}
        return {"passed": self.passed, **values}  # type: ignore[attr-defined]

    def to_json(self, *, indent: int | None = None) -> str:
        """Return the result as one JSON object."""
        return json.dumps(self.to_dict(), indent=indent, ensure_ascii=False)

    @property
    def _verdict(self) -> str:
        return "PASSED" if self.passed else "FAILED"  # type: ignore[attr-defined]


def table(checks: Iterable[Check], failed: Collection[str]) -> list[str]:
    """Return one line per check."""
    found = []
    for check in checks:
        p_value = "" if check.p_value in (0.0, 1.0) else f"p {check.p_value:.1e}"
        found.append(f"{'FAILED' if check.name in failed else 'ok':6}  {p_value:9}  {check.name}: {check.finding}")
    return found
