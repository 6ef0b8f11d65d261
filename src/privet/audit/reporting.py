"""Results in prose."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from privet.audit.checks import Check

if TYPE_CHECKING:
    from privet.audit.mechanism.whitebox import MechanismAudit
    from privet.audit.one_run.guesses import GuessBounds
    from privet.audit.one_run.membership import OneRunAudit


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


def one_run_text(found: OneRunAudit) -> str:
    """Return the certificate of an audit of one training."""
    return "\n".join([
        f"{verdict(found.passed)}: ε ≤ {found.epsilon_claimed:.4g} is claimed, at δ = {found.delta:g}.",
        "",
        f"Lower bounds on ε, each with confidence {found.confidence:g}, from {found.expected.canaries:,} canaries:",
        _guesses("an adversary who sees every step", found.white_box),
        _guesses("an adversary who sees the final model", found.black_box),
        "Of a mechanism with exactly the claimed ε, an ideal adversary would prove about "
        f"{found.expected.epsilon:.3g} by counting, and {found.expected.epsilon_f_dp:.3g} by the trade-off curve: one run shows "
        "gross faults only.",
    ])  # fmt: skip


def _guesses(who: str, found: GuessBounds) -> str:
    return (
        f"- {who}: {found.epsilon:.3g} by counting, {found.epsilon_f_dp:.3g} if the trade-off curve is that of normal laws "
        f"({found.correct:,} of {found.guesses:,} guesses right)"
    )
