"""What is known about the accountants: their names and in which direction they can be wrong."""

from __future__ import annotations

import math
from dataclasses import dataclass

from privet.report import numbers


@dataclass(frozen=True, slots=True)
class AccountantLabel:
    """An accountant, described.

    Args:
        name: as people write it.
        full_name: spelled out.
        direction: how its ε relates to the true one, in two or three words.
        meaning: the same in a sentence.
        is_bound: whether its ε is never too small.
    """

    name: str
    full_name: str
    direction: str
    meaning: str
    is_bound: bool

    def show(self, epsilon: float | None) -> str:
        """Return its ε as people read it: with ≈ unless it is a bound, a dash if it has no answer."""
        if epsilon is None:
            return "—"
        about = "" if self.is_bound or math.isinf(epsilon) else "≈\N{NO-BREAK SPACE}"
        return about + numbers.epsilon(epsilon)


def _bound(name: str, full_name: str) -> AccountantLabel:
    return AccountantLabel(name, full_name, "upper bound", "The true ε is this or smaller.", is_bound=True)


_KNOWN = {
    "pld": _bound("PLD", "privacy loss distribution"),
    "rdp": _bound("RDP", "Rényi differential privacy"),
    "moments": _bound("Moments", "moments accountant"),
    "strong": _bound("Strong", "strong composition"),
    "basic": _bound("Basic", "basic composition"),
    "gdp": AccountantLabel(
        "GDP",
        "Gaussian differential privacy",
        "approximation",
        "A central-limit approximation: it can be too small and promises nothing.",
        is_bound=False,
    ),
}


def describe(key: str) -> AccountantLabel:
    """Return what is known about the accountant that `guarantee.json` calls `key`."""
    unknown = AccountantLabel(key, key, "unknown direction", "Not known to this report: do not rely on it.", is_bound=False)
    return _KNOWN.get(key, unknown)
