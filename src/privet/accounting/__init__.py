"""Accounting: from what was released to (ε, δ), and back."""

from privet.accounting.events import ADJACENCIES, Event
from privet.accounting.queries import (
    ACCOUNTANTS,
    DIRECTIONS,
    compare,
    composed_epsilon,
    epsilon,
    noise_multiplier,
    steps,
)

__all__ = [
    "ACCOUNTANTS",
    "ADJACENCIES",
    "DIRECTIONS",
    "Event",
    "compare",
    "composed_epsilon",
    "epsilon",
    "noise_multiplier",
    "steps",
]
