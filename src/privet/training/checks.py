"""Checks of model and optimizer before each step; they look at public values only."""

from __future__ import annotations

__all__ = [
    "KnowsNoise",
    "check_arguments",
    "check_one_process",
    "check_optimizer",
    "check_plan_suits",
    "check_same_parameters",
    "choose_physical_batch_size",
    "note_kinds",
]

import functools
import inspect
import math
import os
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, distributed, nn
from torch.utils.data import Dataset

from privet.errors import InvalidArgumentError, UnsupportedModelError, choice, count
from privet.gradients import METHODS
from privet.plan import Plan
from privet.reading.batches import check_dataset
from privet.training.fresh import check_fresh_optimizer, wrapped
from privet.training.options import Reading

_USUAL_SIZE = 256


@runtime_checkable
class KnowsNoise(Protocol):
    """An optimizer that is made for a certain noise."""

    def check(self, plan: Plan, parameters: Mapping[str, nn.Parameter]) -> None:
        """Refuse a plan with another noise on these parameters."""


def check_arguments(plan: Plan, dataset: Dataset[Any], physical_batch_size: int | None, method: str, reading: Reading) -> None:
    """Refuse arguments of a training that are out of range, and a data set that is not the plan's.

    Raises:
        InvalidArgumentError: names the argument.
    """
    if not isinstance(plan, Plan):
        raise InvalidArgumentError("plan", type(plan).__name__, "a privet.Plan")
    if not isinstance(reading, Reading):
        raise InvalidArgumentError("reading", type(reading).__name__, "a privet.Reading")
    plan.check_covered()
    check_dataset(dataset, plan.examples, plan.unit)
    if physical_batch_size is not None:
        count("physical_batch_size", physical_batch_size, fix="It limits memory use and does not change the result.")
    choice("method", method, ("auto", *METHODS))


def check_one_process() -> None:
    """Refuse to train in one of several processes of torch.distributed, or of torchrun.

    Each would sample, add noise and count for itself, over the whole data set: the releases of all would spend the budget as
    many times, and no ledger would say so.

    Raises:
        InvalidArgumentError: says how many processes there are.
    """
    size = 1
    if distributed.is_available():
        if distributed.is_initialized():
            size = distributed.get_world_size()
        elif distributed.is_torchelastic_launched():
            size = int(os.environ.get("WORLD_SIZE", "1"))
    if size > 1:
        raise InvalidArgumentError(
            "world_size", size, "1",
            "Privet trains in one process on one device: each of several would spend the whole ε on its own. Start the script "
            "without torchrun, and leave torch.distributed out.",
        )  # fmt: skip


def choose_physical_batch_size(plan: Plan) -> int:
    """Return the usual number of examples that go through the model at once.

    Draws with an expected size of 256 would need a second pass for a few examples in half of the steps. Every pass has a fixed
    cost, so there is room for draws up to four standard deviations of a Poisson sample above their expected size.

    Args:
        plan: the plan, which is public.
    """
    expected = plan.sampling.expected_batch_size(plan.examples)
    return _USUAL_SIZE if expected > _USUAL_SIZE else max(_USUAL_SIZE, math.ceil(expected + 4 * math.sqrt(expected)))


def check_plan_suits(optimizer: torch.optim.Optimizer, plan: Plan, parameters: Mapping[str, nn.Parameter]) -> None:
    """Refuse a plan whose noise is not the one that the optimizer was made for, if it depends on the noise."""
    for each in wrapped(optimizer):
        if isinstance(each, KnowsNoise):
            each.check(plan, parameters)


def check_optimizer(optimizer: torch.optim.Optimizer, parameters: Mapping[str, nn.Parameter], *, fresh: bool) -> None:
    """Refuse an optimizer that evaluates the loss, changes other parameters than the model's, or holds earlier state.

    Args:
        optimizer: optimizer of the training.
        parameters: name → trainable parameter of the model.
        fresh: whether it must not have taken any step.
    """
    if isinstance(optimizer, list | tuple):
        raise InvalidArgumentError(
            "optimizer", f"a {type(optimizer).__name__} of {len(optimizer)}", "one torch.optim optimizer",
            "Combine several over disjoint parameters: privet.optim.Combined(*optimizers).",
        )  # fmt: skip
    every = list(wrapped(optimizer)) if isinstance(optimizer, torch.optim.Optimizer) else []
    if not every or any(map(_evaluates_again, map(type, every))):
        raise InvalidArgumentError(
            "optimizer", type(optimizer).__name__, "a torch.optim optimizer that takes one gradient per step",
            "An optimizer that evaluates the loss again (LBFGS, closures) would use the data outside the plan.",
        )  # fmt: skip
    if any(isinstance(each, torch.optim.SparseAdam) or _is_differentiated(each) for each in every):
        raise InvalidArgumentError(
            "optimizer", f"{type(optimizer).__name__} for sparse gradients, or with differentiable=True",
            "one for dense gradients",
            "A release is dense, and nothing is differentiated through a step: use Adam, or leave differentiable out.",
        )  # fmt: skip
    held = [_moved(each) for each in every]
    names = {id(parameter): name for name, parameter in parameters.items()}
    if left_out := [name for key, name in names.items() if key not in held[0]]:
        raise InvalidArgumentError(
            "optimizer", f"without {', '.join(left_out[:3])}", "over every trainable parameter of the model",
            "Pass model.parameters(), or freeze those with requires_grad_(False).",
        )  # fmt: skip
    if any(own - names.keys() for own in held):
        raise InvalidArgumentError("optimizer", "over foreign parameters", "over the model's own trainable parameters only")
    if fresh:
        check_fresh_optimizer(optimizer, parameters)


@functools.lru_cache(maxsize=64)
def _evaluates_again(kind: Any) -> bool:
    """Return whether optimizers of a class evaluate the loss in a step: by a closure that `step` cannot do without."""
    closure = inspect.signature(kind.step).parameters.get("closure")
    needed = closure is not None and closure.default is inspect.Parameter.empty and closure.kind is not closure.VAR_POSITIONAL
    return needed or issubclass(kind, torch.optim.LBFGS)


def _is_differentiated(optimizer: torch.optim.Optimizer) -> bool:
    return any(group.get("differentiable") for group in optimizer.param_groups)


def _moved(optimizer: torch.optim.Optimizer) -> set[int]:
    return {id(parameter) for group in optimizer.param_groups for parameter in group["params"] if parameter.requires_grad}


def note_kinds(parameters: Mapping[str, Tensor]) -> dict[str, tuple[object, ...]]:
    """Return name → what the state of a training is made for: precision, shape and device of each parameter."""
    return {name: (each.dtype, tuple(each.shape), each.device) for name, each in parameters.items()}


def check_same_parameters(
    model: nn.Module, parameters: Mapping[str, nn.Parameter], kinds: Mapping[str, tuple[object, ...]]
) -> None:
    """Refuse a model whose trainable parameters are no longer exactly these, of these kinds (see `note_kinds`)."""
    now = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    if now.keys() != parameters.keys() or any(now[name] is not parameters[name] for name in now):
        raise UnsupportedModelError(
            "the set of trainable parameters changed after the Training was created; create a new Training for the new set"
        )
    for name, kind in note_kinds(now).items():
        if kind != kinds[name]:
            was, became = (f"{dtype} of shape {shape} on {device}" for dtype, shape, device in (kinds[name], kind))
            raise UnsupportedModelError(
                f"parameter {name} was {was} when the Training was created, and is {became} now; change it back with model.to(), "
                "or create a new Training for the changed model"
            )
