"""Clipping: how much one example may contribute to a step, and the sensitivity that follows."""

from privet.clipping.ablations import Unclipped, unbounded
from privet.clipping.adaptive import AdaptiveQuantile, count_share
from privet.clipping.base import BOUND_RANGE, NormRule, Rule
from privet.clipping.estimated_norm import Projected
from privet.clipping.layerwise import Layerwise
from privet.clipping.psac import PSAC, PSASC
from privet.clipping.rules import Automatic, Flat, Global, Normalize

# Weights that are functions of one norm, which every style is made of; and all that a plan can hold.
NORM_RULES: dict[str, type[NormRule]] = {rule.__name__: rule for rule in (Flat, Automatic, Normalize, PSAC, PSASC, Global)}
RULES: dict[str, type[Rule]] = {**NORM_RULES, Layerwise.__name__: Layerwise, AdaptiveQuantile.__name__: AdaptiveQuantile}
# For studies of what clipping does: no rules to train with, and no choice of the command line.
ABLATIONS: dict[str, type[Rule]] = {"Unclipped": Unclipped}
# What a plan may hold: rules, and what is made of other rules.
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
