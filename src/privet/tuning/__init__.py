"""Tuning: feasibility of a plan, the scaling rule for equivalent settings, and a private hyperparameter search."""

from privet.accounting.composition.selection import PoissonTrials, TruncatedNegativeBinomial, geometric, logarithmic
from privet.tuning.feasibility import Feasibility, assess
from privet.tuning.scaling import Setting, diagonal
from privet.tuning.trials import PaidScore, PublicScore, TrialResult, calibrate_search, search, state_search

__all__ = [
    "Feasibility",
    "PaidScore",
    "PoissonTrials",
    "PublicScore",
    "Setting",
    "TrialResult",
    "TruncatedNegativeBinomial",
    "assess",
    "calibrate_search",
    "diagonal",
    "geometric",
    "logarithmic",
    "search",
    "state_search",
]
