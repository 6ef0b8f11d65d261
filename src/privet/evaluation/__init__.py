"""How good a trained model is: accuracy, likelihood and confusion on a test set, and how sure those numbers are."""

from privet.evaluation.classifier import evaluate
from privet.evaluation.interval import wilson_interval
from privet.evaluation.result import Evaluation

__all__ = ["Evaluation", "evaluate", "wilson_interval"]
