"""Accounting: from what was released to (ε, δ), and back."""

from privet.accounting import mechanisms, tradeoff
from privet.accounting.comparison import Comparison, compare
from privet.accounting.events import (
    ADJACENCIES,
    BallsInBins,
    Event,
    FixedSize,
    Release,
    Shuffled,
    TruncatedPoisson,
    combined,
    epochs,
)
from privet.accounting.parallel import parallel_epsilon
from privet.accounting.queries import (
    ACCOUNTANTS,
    DIRECTIONS,
    accountants,
    composed_delta,
    composed_deltas,
    composed_epsilon,
    composed_multiplier,
    default_accountant,
    epsilon,
    noise_multiplier,
    steps,
)
from privet.accounting.unit import Unit, group_unit, unit

__all__ = [
    "ACCOUNTANTS",
    "ADJACENCIES",
    "DIRECTIONS",
    "BallsInBins",
    "Comparison",
    "Event",
    "FixedSize",
    "Release",
    "Shuffled",
    "TruncatedPoisson",
    "Unit",
    "accountants",
    "combined",
    "compare",
    "composed_delta",
    "composed_deltas",
    "composed_epsilon",
    "composed_multiplier",
    "default_accountant",
    "epochs",
    "epsilon",
    "group_unit",
    "mechanisms",
    "noise_multiplier",
    "parallel_epsilon",
    "steps",
    "tradeoff",
    "unit",
]
