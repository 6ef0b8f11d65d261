"""Tuning: the scaling rule for equivalent settings, and a private hyperparameter search."""

from privet.accounting.composition.selection import PoissonTrials, TruncatedNegativeBinomial, geometric, logarithmic
from privet.tuning.scaling import Setting, diagonal
from privet.tuning.trials import Found, PaidScore, PublicScore, calibrate, guarantee, search

__all__ = [
    "Found",
    "PaidScore",
    "PoissonTrials",
    "PublicScore",
    "Setting",
    "TruncatedNegativeBinomial",
    "calibrate",
    "diagonal",
    "geometric",
    "guarantee",
    "logarithmic",
    "search",
]
