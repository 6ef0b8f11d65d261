"""Tuning: the scaling rule for equivalent settings, and a private hyperparameter search."""

from privet.accounting.composition.selection import PoissonTrials, TruncatedNegativeBinomial, geometric, logarithmic
from privet.tuning.scaling import ScaledSetting, diagonal
from privet.tuning.trials import PaidScore, PublicScore, TrialResult, calibrate, guarantee, search

__all__ = [
    "PaidScore",
    "PoissonTrials",
    "PublicScore",
    "ScaledSetting",
    "TrialResult",
    "TruncatedNegativeBinomial",
    "calibrate",
    "diagonal",
    "geometric",
    "guarantee",
    "logarithmic",
    "search",
]
