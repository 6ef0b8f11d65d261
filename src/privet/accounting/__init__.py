"""Privacy accounting: from releases to (ε, δ), and back."""

from privet.accounting.classic import edgeworth, zcdp
from privet.accounting.composition import mechanisms
from privet.accounting.composition.parallel import parallel_epsilon
from privet.accounting.composition.written import Composition, parse_composition, read_composition
from privet.accounting.events import (
    ADJACENCIES,
    BallsInBinsEvent,
    Event,
    FixedSizeEvent,
    Release,
    ShuffledEvent,
    TruncatedPoissonEvent,
    combined,
    epochs,
)
from privet.accounting.guarantee import tradeoff
from privet.accounting.guarantee.comparison import Comparison, compare
from privet.accounting.mechanism_events import EpsilonDeltaEvent, LaplaceEvent, RandomizedResponseEvent
from privet.accounting.privacy_unit import Unit, group_unit, unit
from privet.accounting.queries import (
    ACCOUNTANTS,
    DEFAULT_ACCOUNTANT,
    DIRECTIONS,
    composed_delta,
    composed_deltas,
    composed_epsilon,
    composed_multiplier,
    epsilon,
    noise_multiplier,
    steps,
)

__all__ = [
    "ACCOUNTANTS",
    "ADJACENCIES",
    "DEFAULT_ACCOUNTANT",
    "DIRECTIONS",
    "BallsInBinsEvent",
    "Comparison",
    "Composition",
    "EpsilonDeltaEvent",
    "Event",
    "FixedSizeEvent",
    "LaplaceEvent",
    "RandomizedResponseEvent",
    "Release",
    "ShuffledEvent",
    "TruncatedPoissonEvent",
    "Unit",
    "combined",
    "compare",
    "composed_delta",
    "composed_deltas",
    "composed_epsilon",
    "composed_multiplier",
    "edgeworth",
    "epochs",
    "epsilon",
    "group_unit",
    "mechanisms",
    "noise_multiplier",
    "parallel_epsilon",
    "parse_composition",
    "read_composition",
    "steps",
    "tradeoff",
    "unit",
    "zcdp",
]
