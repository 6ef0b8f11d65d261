"""What has to hold of model, optimizer and average before a step is taken, all of it public."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

from privet.errors import InvalidArgumentError, UnsupportedModelError, real
from privet.gradients.trees import examples_in
from privet.plan import Plan


@runtime_checkable
class KnowsNoise(Protocol):
    """An optimizer whose steps mean something only under a certain noise."""

    def check(self, plan: Plan, parameters: Mapping[str, nn.Parameter]) -> None:
        """Refuse a plan that has another noise on these parameters."""


def check_plan_suits(optimizer: torch.optim.Optimizer, plan: Plan, parameters: Mapping[str, nn.Parameter]) -> None:
    """Refuse a plan whose noise is not what the optimizer was made for, if it was made for one."""
    if isinstance(optimizer, KnowsNoise):
        optimizer.check(plan, parameters)


def check_optimizer(optimizer: torch.optim.Optimizer, parameters: Mapping[str, nn.Parameter], *, fresh: bool) -> None:
    """Refuse an optimizer that sees the loss, moves other parameters than the model's, or remembers earlier steps.

    Args:
        optimizer: of the training.
        parameters: name → trainable parameter of the model.
        fresh: whether it must not have taken a step yet.
    """
    if not isinstance(optimizer, torch.optim.Optimizer) or isinstance(optimizer, torch.optim.LBFGS):
        raise InvalidArgumentError(
            "optimizer", type(optimizer).__name__, "a torch.optim optimizer that takes one gradient per step",
            "An optimizer that evaluates the loss again (LBFGS, closures) would see the data outside the plan.",
        )  # fmt: skip
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"] if parameter.requires_grad}
    names = {id(parameter): name for name, parameter in parameters.items()}
    if left_out := [name for key, name in names.items() if key not in held]:
        raise InvalidArgumentError(
            "optimizer", f"without {', '.join(left_out[:3])}", "over every trainable parameter of the model",
            "Pass model.parameters(), or freeze those with requires_grad_(False).",
        )  # fmt: skip
    if held - names.keys():
        raise InvalidArgumentError("optimizer", "over foreign parameters", "over the model's own trainable parameters only")
    if not fresh:
        return
    for group in optimizer.param_groups:
        real("optimizer.lr", float(group.get("lr", 0.0)))  # not every optimizer has one
    if any(float(state.get("step", 1)) > 0 for state in optimizer.state.values()):
        raise InvalidArgumentError(
            "optimizer",
            "with state from earlier steps",
            "new",
            "State from non-private steps would carry their data along.",
        )


def check_average(average: AveragedModel, model: nn.Module, *, fresh: bool) -> None:
    """Refuse an average of something else than the model, or, if `fresh`, of earlier steps."""
    if not isinstance(average, AveragedModel):
        raise InvalidArgumentError(
            "average", type(average).__name__, "a torch.optim.swa_utils.AveragedModel",
            "AveragedModel(model) averages uniformly; multi_avg_fn=get_ema_multi_avg_fn(0.999) exponentially.",
        )  # fmt: skip
    if [parameter.shape for parameter in average.module.parameters()] != [parameter.shape for parameter in model.parameters()]:
        raise InvalidArgumentError("average", "of another model", "made from the model that is trained")
    if fresh and int(average.n_averaged) > 0:
        raise InvalidArgumentError("average", "of earlier steps", "new", "Non-private parameters would carry their data along.")


def check_same_parameters(model: nn.Module, parameters: Mapping[str, nn.Parameter]) -> None:
    """Refuse a model that no longer trains exactly these parameters."""
    now = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    if now.keys() != parameters.keys() or any(now[name] is not parameters[name] for name in now):
        raise UnsupportedModelError(
            "the set of trainable parameters changed after the training was set up; make a new Training for the new set"
        )


def check_one_entry_each(batch: Any, examples: int) -> None:
    """Refuse a batch in which an example has several entries: each would be clipped by itself."""
    if examples_in(batch) != examples:
        raise InvalidArgumentError(
            "collate", f"a first dimension of {examples_in(batch)} for {examples} examples",
            "a batch with one entry per example along its first dimension",
        )  # fmt: skip
