"""Privet: train PyTorch models with differential privacy.

Declare a `Plan`, hand it with a model and data to a `Training`, and get the model, the (ε, δ) it can prove, and a report.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from privet import (
        accounting,
        artifact,
        audit,
        clipping,
        collate,
        convex,
        data,
        distributed,
        errors,
        evaluation,
        federated,
        gradients,
        models,
        momentum,
        noise,
        optim,
        report,
        sampling,
        schedules,
        sparsification,
        tables,
        tracking,
        training,
        tuning,
        units,
    )
    from privet._utils.registry import register
    from privet.artifact.predictor import load
    from privet.artifact.saving import save
    from privet.budget import Budget
    from privet.gradients import clipped_sum, per_example_gradients, per_example_norms
    from privet.plan import Plan
    from privet.plan.mechanism import epochs
    from privet.training import Callback, Reading, Storage, Training

__version__ = "0.1.0"

__all__ = [
    "Budget",
    "Callback",
    "Plan",
    "Reading",
    "Storage",
    "Training",
    "accounting",
    "artifact",
    "audit",
    "clipped_sum",
    "clipping",
    "collate",
    "convex",
    "data",
    "distributed",
    "epochs",
    "errors",
    "evaluation",
    "federated",
    "gradients",
    "load",
    "models",
    "momentum",
    "noise",
    "optim",
    "per_example_gradients",
    "per_example_norms",
    "register",
    "report",
    "sampling",
    "save",
    "schedules",
    "sparsification",
    "tables",
    "tracking",
    "training",
    "tuning",
    "units",
]

# Where the names are that are no modules. All are imported when they are first used, so that what needs no PyTorch starts at
# once.
_PLACES = {
    "Budget": "budget",
    "Callback": "training",
    "Plan": "plan",
    "Reading": "training",
    "Storage": "training",
    "Training": "training",
    "clipped_sum": "gradients",
    "epochs": "plan.mechanism",
    "load": "artifact.predictor",
    "per_example_gradients": "gradients",
    "per_example_norms": "gradients",
    "register": "_utils.registry",
    "save": "artifact.saving",
}


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        found = getattr(importlib.import_module(f"privet.{_PLACES[name]}"), name)
    elif name in __all__:
        found = importlib.import_module(f"privet.{name}")
    else:
        raise AttributeError(f"module 'privet' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
