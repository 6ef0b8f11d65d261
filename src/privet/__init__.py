"""Privet: train PyTorch models with differential privacy.

Declare a `Plan`, hand it with a model and data to a `Training`, and get the model, the (ε, δ) it can prove, and a report.
"""

import importlib
from types import ModuleType

from privet import accounting, clipping, collate, errors, momentum, noise, sampling, schedules, sparsification, units
from privet.budget import Budget
from privet.gradients import clipped_sum, per_example_gradients, per_example_norms
from privet.plan import Plan, epochs, register
from privet.training import Training

__version__ = "0.1.0"

__all__ = [
    "Budget",
    "Plan",
    "Training",
    "accounting",
    "audit",
    "clipped_sum",
    "clipping",
    "collate",
    "cost",
    "data",
    "epochs",
    "errors",
    "evaluation",
    "models",
    "momentum",
    "noise",
    "optim",
    "per_example_gradients",
    "per_example_norms",
    "recipes",
    "register",
    "report",
    "sampling",
    "schedules",
    "sparsification",
    "tuning",
    "units",
]

_WHEN_USED = ("audit", "cost", "data", "evaluation", "models", "optim", "recipes", "report", "tuning")


def __getattr__(name: str) -> ModuleType:
    if name in _WHEN_USED:
        return importlib.import_module(f"privet.{name}")
    raise AttributeError(f"module 'privet' has no attribute {name!r}")
