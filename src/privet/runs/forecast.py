"""The forecast of a run: what its plan and the size of its model allow, before the first step."""

from __future__ import annotations

__all__ = ["foresee"]

from torch import nn

from privet.data import DataSet
from privet.gradients import trainable
from privet.plan import Plan
from privet.runs.config import Setup
from privet.tuning.feasibility import Feasibility, assess, find_simpler_model


def foresee(setup: Setup, plan: Plan, dataset: DataSet, model: nn.Module) -> Feasibility:
    """Return the feasibility of a run from public facts, with warnings where it is unlikely to work."""
    epsilon = plan.epsilon()
    simpler = find_simpler_model(
        setup.model,
        plan.examples,
        dataset.input_shape,
        task=setup.task(dataset).name,
        schema=dataset.schema is not None,
        epsilon=epsilon,
        delta=plan.delta,
    )
    parameters = sum(parameter.numel() for parameter in trainable(model).values())
    return assess(plan, parameters, epsilon=epsilon, simpler=simpler)
