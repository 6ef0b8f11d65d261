"""Accounting: from what was released to (ε, δ), and back."""

from privet.accounting.events import ADJACENCIES, Event
from privet.accounting.queries import (
    ACCOUNTANTS,
    DIRECTIONS,
    accountants,
    compare,
    composed_epsilon,
    composed_multiplier,
    default_accountant,
    epsilon,
    noise_multiplier,
    steps,
)

__all__ = [
    "ACCOUNTANTS",
    "ADJACENCIES",
    "DIRECTIONS",
    "Event",
    "accountants",
    "compare",
    "composed_epsilon",
    "composed_multiplier",
    "default_accountant",
    "epsilon",
    "noise_multiplier",
    "steps",
]
