"""Clipping: rules that bound one example's contribution to a step, and their sensitivity."""

from privet._utils.registry import kinds_of
from privet.clipping.adaptive import AdaptiveQuantile
from privet.clipping.base import NormRule, Rule
from privet.clipping.estimated_norm import Projected
from privet.clipping.gep import GEP
from privet.clipping.layerwise import Layerwise
from privet.clipping.rules import PSAC, PSASC, Automatic, Flat, Global, Normalize, Unclipped

# Privet's own rules of a single norm, from which layerwise and adaptive rules are built: the choices of the command line.
# `Unclipped` is for studies of the effect of clipping only.
NORM_RULES: dict[str, type[NormRule]] = {name: kind for name, kind in sorted(kinds_of(NormRule).items()) if kind is not Unclipped}

__all__ = [
    "GEP",
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
]
