"""Names of the accountants, and the direction in which each can be wrong."""

from __future__ import annotations

import math
from dataclasses import dataclass

from privet.report import numbers


@dataclass(frozen=True, slots=True)
class AccountantLabel:
    """Description of an accountant: the relation of its ε to the true ε, in two or three words and, unless bound, in a sentence.

    A textbook theorem is many times too large for a training; a chart on a linear axis leaves it to the table.
    """

    name: str
    full_name: str
    direction: str = "upper bound"
    meaning: str = ""
    is_bound: bool = True
    is_textbook: bool = False

    def show(self, epsilon: float | None) -> str:
        """Return its ε for display: with ≈ unless it is a bound, and words if there is none."""
        if epsilon is None:
            return "no answer"
        about = "" if self.is_bound or math.isinf(epsilon) else "≈\N{NO-BREAK SPACE}"
        return about + numbers.format_epsilon(epsilon)


_KNOWN = {
    "pld": AccountantLabel("PLD", "privacy loss distribution"),
    "rdp": AccountantLabel("RDP", "Rényi differential privacy"),
    "moments": AccountantLabel("Moments", "moments accountant"),
    "strong": AccountantLabel("Strong", "strong composition", is_textbook=True),
    "basic": AccountantLabel("Basic", "basic composition", is_textbook=True),
    "edgeworth": AccountantLabel(
        "Edgeworth", "Edgeworth expansion", "approximation",
        "An approximation by moments of the losses, which can be too small: not a guarantee.", is_bound=False,
    ),
    "gdp": AccountantLabel(
        "GDP", "Gaussian differential privacy", "approximation",
        "A central-limit approximation, which can be too small: not a guarantee.", is_bound=False,
    ),
}  # fmt: skip


def describe(key: str) -> AccountantLabel:
    """Return the description of the accountant that is named `key` in `guarantee.json`."""
    unknown = AccountantLabel(key, key, "unknown direction", "Unknown to this report: do not rely on it.", is_bound=False)
    return _KNOWN.get(key, unknown)
