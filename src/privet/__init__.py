"""Privet: train PyTorch models with differential privacy.

Declare a `Plan`, hand it with a model and data to a `Training`, and get the model, the (ε, δ) it can prove, and a report.
"""

from privet import accounting, clipping, errors, noise, sampling
from privet.plan import Plan, epochs

__version__ = "0.1.0"

__all__ = ["Plan", "accounting", "clipping", "epochs", "errors", "noise", "sampling"]
