"""Results in prose."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from privet.audit.checks import Check

if TYPE_CHECKING:
    from privet.audit.whitebox import MechanismAudit


def text(found: MechanismAudit) -> str:
    """Return the certificate of an audit of a mechanism."""
    low, high = found.noise_multiplier_interval
    inside, outside = found.scores
    confidence = f"with confidence 1 − {found.alpha:g}"
    return "\n".join([
        f"{verdict(found.passed)}: ε ≥ {found.epsilon_lower_bound:.4g} was shown, ε ≤ {found.epsilon_claimed:.4g} is claimed, at "
        f"δ = {found.delta:g}.",
        "",
        f"Lower bound on ε, {confidence}: {found.epsilon_lower_bound:.4g} from a normal fit, whose law was tested, and "
        f"{found.epsilon_lower_bound_nonparametric:.4g} from error rates alone.",
        f"Scores compared: {inside:,} with a canary, {outside:,} without.",
        f"Noise multiplier: {found.noise_multiplier:.5g} is planned, between {low:.5g} and {high:.5g} was measured.",
        f"Influence of one example: {found.influence:.4g} of what the plan admits, and at least {found.influence_low:.4g}.",
        *(f"Note: {note}." for note in found.notes),
        "",
        *table(found.checks, found.failed),
    ])  # fmt: skip


def verdict(passed: bool) -> str:
    """Return the word for a result."""
    return "PASSED" if passed else "FAILED"


def table(checks: Iterable[Check], failed: Iterable[str]) -> list[str]:
    """Return a line for every check."""
    rejected = set(failed)
    return [
        f"{'FAILED' if check.name in rejected else 'ok':6}  {_p_value(check):9}  {check.name}: {check.finding}"
        for check in checks
    ]


def _p_value(check: Check) -> str:
    return "" if check.p_value in (0.0, 1.0) else f"p {check.p_value:.1e}"
