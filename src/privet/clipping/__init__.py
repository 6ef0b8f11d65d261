"""Clipping: rules that bound one example's contribution to a step, and their sensitivity."""

from privet.clipping.ablations import Unclipped, unbounded
from privet.clipping.adaptive import AdaptiveQuantile, count_share
from privet.clipping.base import BOUND_RANGE, NormRule, Rule
from privet.clipping.estimated_norm import Projected
from privet.clipping.layerwise import Layerwise
from privet.clipping.psac import PSAC, PSASC
from privet.clipping.rules import Automatic, Flat, Global, Normalize

# Rules of a single norm, from which layerwise and adaptive rules are built; and all rules for training.
NORM_RULES: dict[str, type[NormRule]] = {rule.__name__: rule for rule in (Flat, Automatic, Normalize, PSAC, PSASC, Global)}
RULES: dict[str, type[Rule]] = {**NORM_RULES, Layerwise.__name__: Layerwise, AdaptiveQuantile.__name__: AdaptiveQuantile}
# For studies of the effect of clipping only: not for private training, and not offered on the command line.
ABLATIONS: dict[str, type[Rule]] = {"Unclipped": Unclipped}
# Everything that a plan may hold.
KINDS: dict[str, type[Rule]] = {**RULES, **ABLATIONS, "Projected": Projected}

__all__ = [
    "ABLATIONS",
    "BOUND_RANGE",
    "KINDS",
    "NORM_RULES",
    "PSAC",
    "PSASC",
    "RULES",
    "AdaptiveQuantile",
    "Automatic",
    "Flat",
    "Global",
    "Layerwise",
    "NormRule",
    "Normalize",
    "Projected",
    "Rule",
    "Unclipped",
    "count_share",
    "unbounded",
]
