"""Evaluation of trained models on a test set: accuracy, likelihood, calibration and confusion, with intervals."""

from privet.evaluation.bins import BinTable, class_wise, equal_mass, equal_width, tabulate, top_label
from privet.evaluation.classifier import evaluate
from privet.evaluation.displays import ConfidenceDisplay, ReliabilityDisplay, TrueClassDisplay
from privet.evaluation.held_out import HeldOutEstimate
from privet.evaluation.interval import bootstrap_interval, noisy_interval, wilson_interval
from privet.evaluation.regression import evaluate_regression
from privet.evaluation.result import Evaluation, GroupAccuracy, RegressionEvaluation

__all__ = [
    "BinTable",
    "ConfidenceDisplay",
    "Evaluation",
    "GroupAccuracy",
    "HeldOutEstimate",
    "RegressionEvaluation",
    "ReliabilityDisplay",
    "TrueClassDisplay",
    "bootstrap_interval",
    "class_wise",
    "equal_mass",
    "equal_width",
    "evaluate",
    "evaluate_regression",
    "noisy_interval",
    "tabulate",
    "top_label",
    "wilson_interval",
]
