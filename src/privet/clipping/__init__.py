"""Clipping: how much one example may contribute to a step, and the sensitivity that follows."""

from privet._utils.registry import kinds_of
from privet.clipping.ablations import Unclipped, unbounded
from privet.clipping.adaptive import AdaptiveQuantile, count_share
from privet.clipping.base import BOUND_RANGE, NormRule, Rule
from privet.clipping.estimated_norm import Projected
from privet.clipping.layerwise import Layerwise
from privet.clipping.psac import PSAC, PSASC
from privet.clipping.rules import Automatic, Flat, Global, Normalize

# Privet's own weights that are functions of one norm, which every style is made of: what the command line offers. Without the
# one that is for studies of what clipping does, and is no rule to train with.
NORM_RULES: dict[str, type[NormRule]] = {name: kind for name, kind in sorted(kinds_of(NormRule).items()) if kind is not Unclipped}

__all__ = [
    "BOUND_RANGE",
    "NORM_RULES",
    "PSAC",
    "PSASC",
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
