"""Shared text of all certificates."""

from __future__ import annotations

__all__ = ["table", "verdict"]

from collections.abc import Iterable

from privet.audit.checks import Check


def verdict(passed: bool) -> str:
    """Return the verdict as a word."""
    return "PASSED" if passed else "FAILED"


def table(checks: Iterable[Check], failed: Iterable[str]) -> list[str]:
    """Return one line per check."""
    rejected = set(failed)
    return [
        f"{'FAILED' if check.name in rejected else 'ok':6}  {_p_value(check):9}  {check.name}: {check.finding}"
        for check in checks
    ]


def _p_value(check: Check) -> str:
    return "" if check.p_value in (0.0, 1.0) else f"p {check.p_value:.1e}"
