"""Checks of model, optimizer, scheduler and average, before the first step and each later one; all of it is public."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Hashable, Iterable, Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler, OneCycleLR
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import Dataset

from privet._utils.tensors import gradient_dtype
from privet.clipping import GEP, Projected
from privet.errors import InvalidArgumentError, UnsupportedModelError, choice, count, real
from privet.gradients import METHODS
from privet.gradients.parameters import list_modules
from privet.plan import Plan
from privet.plan.mechanism import Epochs
from privet.reading.batches import check_dataset
from privet.training.draws import Reading

_USUAL_SIZE = 256
_FIX = "Earlier state would carry the data behind it into this run; create a new optimizer over the model as it is now."


@runtime_checkable
class KnowsNoise(Protocol):
    """An optimizer that is made for a certain noise."""

    def check(self, plan: Plan, parameters: Mapping[str, nn.Parameter]) -> None:
        """Refuse a plan with another noise on these parameters."""


def check_arguments(
    plan: Plan, dataset: Dataset[Any], entries: int, physical_batch_size: int | None, method: str, reading: Reading
) -> None:
    """Refuse arguments of a training that are out of range, and a data set that is not the plan's or has not these entries."""
    if not isinstance(reading, Reading):
        raise InvalidArgumentError("reading", type(reading).__name__, "a privet.Reading")
    plan.check_covered()
    check_dataset(dataset, entries, plan.unit)
    if physical_batch_size is not None:
        count("physical_batch_size", physical_batch_size, fix="It limits memory use and does not change the result.")
    choice("method", method, ("auto", *METHODS))


def choose_physical_batch_size(plan: Plan) -> int:
    """Return the usual number of examples that go through the model at once.

    Every pass has a fixed cost, so one pass takes draws up to four standard deviations of a Poisson sample above their size.
    """
    expected = plan.sampling.expected_batch_size(plan.examples)
    return _USUAL_SIZE if expected > _USUAL_SIZE else max(_USUAL_SIZE, math.ceil(expected + 4 * math.sqrt(expected)))


def check_plan_suits(optimizer: torch.optim.Optimizer, plan: Plan, parameters: Mapping[str, nn.Parameter]) -> None:
    """Refuse a plan whose noise is not the one that the optimizer was made for, if it depends on the noise."""
    for each in wrapped(optimizer):
        if isinstance(each, KnowsNoise):
            each.check(plan, parameters)


def check_optimizer(optimizer: torch.optim.Optimizer, parameters: Mapping[str, nn.Parameter], *, fresh: bool) -> None:
    """Refuse an optimizer that evaluates the loss, changes other parameters than the model's, or (if `fresh`) has taken steps."""
    if isinstance(optimizer, list | tuple):
        allowed = "one torch.optim optimizer"
        fix = "Combine several over disjoint parameters: privet.optim.Combined(*optimizers)."
        raise InvalidArgumentError("optimizer", f"a {type(optimizer).__name__} of {len(optimizer)}", allowed, fix)
    every = list(wrapped(optimizer)) if isinstance(optimizer, torch.optim.Optimizer) else []
    if not every or any(map(_evaluates_again, map(type, every))):
        allowed = "a torch.optim optimizer that takes one gradient per step"
        fix = "An optimizer that evaluates the loss again (LBFGS, closures) would use the data outside the plan."
        raise InvalidArgumentError("optimizer", type(optimizer).__name__, allowed, fix)
    differentiated = any(group.get("differentiable") for each in every for group in each.param_groups)
    if differentiated or any(isinstance(each, torch.optim.SparseAdam) for each in every):
        found = f"{type(optimizer).__name__} for sparse gradients, or with differentiable=True"
        fix = (
            "A release has noise in every row, and nothing is differentiated through a step: use Adam (or SGD with "
            "Plan(embeddings=…), which releases rows), or leave differentiable out."
        )
        raise InvalidArgumentError("optimizer", found, "one for dense gradients", fix)
    held = [{id(one) for group in each.param_groups for one in group["params"] if one.requires_grad} for each in every]
    names = {id(parameter): name for name, parameter in parameters.items()}
    if left_out := [name for key, name in names.items() if key not in held[0]]:
        allowed = "over every trainable parameter of the model"
        fix = "Pass model.parameters(), or freeze those with requires_grad_(False)."
        raise InvalidArgumentError("optimizer", f"without {', '.join(left_out[:3])}", allowed, fix)
    if any(own - names.keys() for own in held):
        raise InvalidArgumentError("optimizer", "over foreign parameters", "over the model's own trainable parameters only")
    if fresh:
        check_fresh_optimizer(optimizer, parameters)


def check_fresh_optimizer(optimizer: torch.optim.Optimizer, parameters: Mapping[str, nn.Parameter]) -> None:
    """Refuse an optimizer of a new run that has taken steps: its state would carry the data behind them into the run.

    State, and tensors in attributes, must be blank (zeros, no steps), copies of the parameters as they are now, or filled with
    one of the optimizer's options. Hooks are allowed: they see released values only.
    """
    names = {id(parameter): name for name, parameter in parameters.items()}
    for each in wrapped(optimizer):
        members = [member for group in each.param_groups for member in group["params"]]
        known = [member.detach() for member in members] + [one for one in each.defaults.values() if type(one) in (int, float)]
        for rate in (group.get("lr") for group in each.param_groups):
            if rate is not None:  # not every optimizer has one, and some choose it themselves
                real("optimizer.lr", rate.item() if math.prod(getattr(rate, "shape", (2,))) == 1 else rate)
        for key, state in each.state.items():
            whose = f" of {names.get(id(key), 'another tensor')}" if isinstance(key, Tensor) else f" under {key!r}"
            for path, leaf in list_leaves(state):
                if not is_blank(leaf) and not _is_public(leaf, known):
                    raise InvalidArgumentError("optimizer", f"with state from earlier steps ({path}{whose})", "new", _FIX)
        attributes = {name: value for name, value in vars(each).items() if name not in ("state", "param_groups", "defaults")}
        for path, leaf in list_leaves(attributes):  # such as the slow weights of Lookahead
            if isinstance(leaf, Tensor | np.ndarray) and not is_blank(leaf) and not _is_public(leaf, known):
                found = f"with tensors of its own in an attribute ({path})"
                allowed = "new, without values of earlier steps"
                fix = "Zeros and copies of parameters as they are now may be there; it may create others in its first step()."
                raise InvalidArgumentError("optimizer", found, allowed, fix)


def _is_public(value: Any, known: Iterable[Tensor | float]) -> bool:
    """Return whether a value is a copy of a parameter, or filled with one of some numbers."""
    return isinstance(value, Tensor) and any(
        torch.equal(value, one.to(value)) if isinstance(one, Tensor) else bool((value == one).all()) for one in known
    )


def check_sharded(plan: Plan, average: AveragedModel | None, *, rows: bool) -> None:
    """Refuse what needs whole parameters or gradients in every process, which a rank of a sharded model has not."""
    needs = {
        f"clipping.{type(plan.clipping).__name__}": isinstance(plan.clipping, GEP | Projected),
        f"sparsification.{type(plan.sparsification).__name__}": plan.sparsification is not None,
        f"momentum.{type(plan.momentum).__name__}": plan.momentum is not None,
        "embeddings=": rows,
        "average=": average is not None,
    }
    if names := [name for name, needed in needs.items() if needed]:
        fix = "Leave it out, or leave fully_shard out: every rank then holds the whole model."
        raise InvalidArgumentError("model", f"sharded (FSDP2), with {names[0]}", f"whole with {names[0]}", fix)


def check_scheduler(scheduler: LRScheduler, optimizer: torch.optim.Optimizer, steps: int, *, fresh: bool) -> None:
    """Refuse a scheduler of another optimizer, that ends before `steps`, needs arguments, or (if `fresh`) has taken steps."""
    kind = type(scheduler).__name__
    if not isinstance(scheduler, LRScheduler):
        raise InvalidArgumentError("scheduler", kind, "a torch.optim.lr_scheduler.LRScheduler")
    try:
        inspect.signature(scheduler.step).bind()
    except TypeError:
        fix = (
            "A metric of the training data would not be private. Choose a schedule that is known in advance, or leave scheduler= "
            "out and call step(metric) between steps, with a metric of public data."
        )
        raise InvalidArgumentError("scheduler", kind, "one whose step() needs no arguments", fix) from None
    for each in (scheduler, *getattr(scheduler, "_schedulers", ())):
        for name, value in vars(each).items():
            if isinstance(value, Epochs) or (name == "T_max" and value is None):  # which fails after the first step
                named = f"{type(each).__name__}({name}={value})"
                raise InvalidArgumentError("scheduler", named, "given a number", "Use plan.total_steps.")
        if getattr(each, "optimizer", None) is not optimizer:
            raise InvalidArgumentError("scheduler", f"{kind} of another optimizer", "made for the optimizer of this training")
        if fresh and getattr(each, "last_epoch", 0) > 0:
            fix = "It counts the steps of the run; create a new one, with a schedule that starts at the first step."
            raise InvalidArgumentError("scheduler", f"{kind} after {each.last_epoch} steps", "new: at step 0", fix)
    if isinstance(scheduler, OneCycleLR) and scheduler.total_steps < steps:
        allowed = f"of at least {steps} steps, which the plan takes"
        fix = "It would end the run with an error after privacy has been spent. Use total_steps=plan.total_steps."
        raise InvalidArgumentError("scheduler", f"OneCycleLR(total_steps={scheduler.total_steps})", allowed, fix)


def check_average(average: AveragedModel, model: nn.Module, *, fresh: bool) -> None:
    """Refuse an average of another model, or (if `fresh`) one that already contains steps."""
    if not isinstance(average, AveragedModel):
        fix = "AveragedModel(model) is a uniform average; with multi_avg_fn=get_ema_multi_avg_fn(0.999), it is exponential."
        raise InvalidArgumentError("average", type(average).__name__, "a torch.optim.swa_utils.AveragedModel", fix)
    own, averaged = dict(model.named_parameters()), dict(average.module.named_parameters())
    if {name: value.shape for name, value in own.items()} != {name: value.shape for name, value in averaged.items()}:
        raise InvalidArgumentError("average", "of another model", "made from the trained model")
    for name, value in own.items():
        if value.requires_grad and gradient_dtype(value) != value.dtype:
            allowed = "of trained parameters in float32"
            fix = "Rounding would remove most of its updates. Train in float32, with autocast for speed."
            raise InvalidArgumentError("average", f"of {name} in {value.dtype}", allowed, fix)
    if not fresh:
        return
    if int(average.n_averaged) > 0:
        fix = "Parameters of earlier steps would carry their data into this run."
        raise InvalidArgumentError("average", "of earlier steps", "new", fix)
    for name, value in own.items():
        if not torch.equal(value.detach(), averaged[name].detach().to(value)):
            allowed = "made from the model as it is now"
            fix = "Create the average after the model has its initial parameters: AveragedModel(model)."
            raise InvalidArgumentError("average", f"with another value of {name} than the model", allowed, fix)


@functools.lru_cache(maxsize=64)
def _evaluates_again(kind: Any) -> bool:
    """Return whether optimizers of a class evaluate the loss in a step: by a closure that `step` cannot do without."""
    closure = inspect.signature(kind.step).parameters.get("closure")
    needed = closure is not None and closure.default is inspect.Parameter.empty and closure.kind is not closure.VAR_POSITIONAL
    return needed or issubclass(kind, torch.optim.LBFGS)


def note_modules(model: nn.Module) -> Hashable:
    """Return a value that changes with a model's modules, parameters, buffers, hooks or flags."""
    found: list[Hashable] = []
    for module in list_modules(model):
        hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
        found += [id(module), module.training, "forward" in module.__dict__, *map(len, hooks)]
        found += [*map(id, module._parameters.values()), None, *map(id, module._buffers.values())]
    return tuple(found)


def note_kinds(parameters: Mapping[str, Tensor]) -> dict[str, tuple[object, ...]]:
    """Return name → what the state of a training is made for: precision, shape and device of each parameter."""
    return {name: (each.dtype, tuple(each.shape), each.device) for name, each in parameters.items()}


def check_same_parameters(
    model: nn.Module, parameters: Mapping[str, nn.Parameter], kinds: Mapping[str, tuple[object, ...]]
) -> None:
    """Refuse a model whose trainable parameters are no longer exactly these, of these kinds (see `note_kinds`)."""
    now = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    if now.keys() != parameters.keys() or list(map(id, now.values())) != list(map(id, parameters.values())):
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


def wrapped(optimizer: torch.optim.Optimizer) -> list[torch.optim.Optimizer]:
    """Return an optimizer, and the optimizers that it holds as attributes at any depth: its steps may step those in turn."""
    found = [optimizer]
    for outer in found:
        for value in vars(outer).values():
            for each in value if isinstance(value, list | tuple) else (value,):
                if isinstance(each, torch.optim.Optimizer) and each not in found:
                    found.append(each)
    return found


def members(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Return the parameters of an optimizer, and those of the optimizers that it wraps."""
    return [member for each in wrapped(optimizer) for group in each.param_groups for member in group["params"]]


def takes_sparse(optimizer: torch.optim.Optimizer, parameter: Tensor) -> bool:
    """Return whether a sparse gradient changes only the rows that it stores: with plain SGD, in the parameter's precision."""
    groups = [group for each in wrapped(optimizer) if type(each) is torch.optim.SGD for group in each.param_groups]
    plain = [group for group in groups if not (group["momentum"] or group["weight_decay"] or group["fused"])]
    known = any(member is parameter for group in plain for member in group["params"])
    return known and gradient_dtype(parameter) == parameter.dtype


def list_leaves(value: Any, path: str = "") -> list[tuple[str, Any]]:
    """Return the values within nested containers, each with the path of its keys."""
    if isinstance(value, Mapping):
        return [leaf for key, item in value.items() for leaf in list_leaves(item, f"{path}.{key}".lstrip("."))]
    if isinstance(value, list | tuple):
        return [leaf for item in value for leaf in list_leaves(item, path)]
    return [(path, value)]


def is_blank(leaf: Any) -> bool:
    """Return whether a value of an optimizer's state holds nothing of earlier steps: None, zeros or text."""
    if isinstance(leaf, Tensor | np.ndarray):
        return not bool((leaf != 0).any())
    return leaf is None or isinstance(leaf, str) or (isinstance(leaf, int | float) and leaf == 0)
