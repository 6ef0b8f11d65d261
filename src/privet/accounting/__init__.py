"""Privacy accounting: from releases to (ε, δ), and back."""

from privet.accounting.classic import edgeworth, zcdp
from privet.accounting.composition import mechanisms
from privet.accounting.composition.written import Composition, read_composition
from privet.accounting.events import (
    BallsInBinsEvent,
    EpsilonDeltaEvent,
    Event,
    FixedSizeEvent,
    LaplaceEvent,
    RandomizedResponseEvent,
    ShuffledEvent,
    TruncatedPoissonEvent,
    combined,
)
from privet.accounting.guarantee import tradeoff
from privet.accounting.guarantee.comparison import Comparison, compare
from privet.accounting.queries import epsilon, noise_multiplier, parallel_epsilon, steps

__all__ = [
    "BallsInBinsEvent",
    "Comparison",
    "Composition",
    "EpsilonDeltaEvent",
    "Event",
    "FixedSizeEvent",
    "LaplaceEvent",
    "RandomizedResponseEvent",
    "ShuffledEvent",
    "TruncatedPoissonEvent",
    "combined",
    "compare",
    "edgeworth",
    "epsilon",
    "mechanisms",
    "noise_multiplier",
    "parallel_epsilon",
    "read_composition",
    "steps",
    "tradeoff",
    "zcdp",
]
