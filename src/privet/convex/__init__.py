"""Convex training: regularised linear models with noise on the objective or on the minimiser, instead of on every gradient.

`ConvexPlan(…).calibrate(epsilon)` declares a model, and `fit(plan, inputs, labels)` releases its weights.
"""

from privet.convex.convex_losses import AdjustedLogistic, Huber, Logistic
from privet.convex.convex_plan import ConvexPlan
from privet.convex.convex_statement import ConvexGuarantee, state_guarantee
from privet.convex.convex_training import fit
from privet.convex.minimiser import bound_rows
from privet.convex.perturbation import ObjectivePerturbation, OutputPerturbation

__all__ = [
    "AdjustedLogistic",
    "ConvexGuarantee",
    "ConvexPlan",
    "Huber",
    "Logistic",
    "ObjectivePerturbation",
    "OutputPerturbation",
    "bound_rows",
    "fit",
    "state_guarantee",
]
