"""Evaluation of trained models on a test set: accuracy, likelihood, calibration and confusion, with intervals."""

from privet.evaluation.bins import BinTable as BinTable
from privet.evaluation.bins import class_wise, equal_mass, equal_width, tabulate, top_label
from privet.evaluation.displays import ConfidenceDisplay, ReliabilityDisplay, TrueClassDisplay
from privet.evaluation.held_out import HeldOutEstimate as HeldOutEstimate
from privet.evaluation.interval import bootstrap_interval as bootstrap_interval
from privet.evaluation.interval import noisy_interval as noisy_interval
from privet.evaluation.interval import wilson_interval as wilson_interval
from privet.evaluation.measurement import evaluate, evaluate_regression
from privet.evaluation.result import Evaluation, RegressionEvaluation
from privet.evaluation.result import GroupAccuracy as GroupAccuracy

__all__ = [
    "ConfidenceDisplay", "Evaluation", "RegressionEvaluation", "ReliabilityDisplay", "TrueClassDisplay", "class_wise",
    "equal_mass", "equal_width", "evaluate", "evaluate_regression", "tabulate", "top_label",
]  # fmt: skip
