"""Shared text and values of all certificates."""

from __future__ import annotations

__all__ = ["Certificate", "table", "verdict"]

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from privet.audit.checks import Check


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
