"""Checks that a new run starts with a new optimizer, scheduler and average: earlier state would carry its data into the run."""

from __future__ import annotations

__all__ = ["check_average", "check_fresh_optimizer", "check_scheduler", "is_blank", "wrapped"]

import inspect
import types
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler, OneCycleLR
from torch.optim.swa_utils import AveragedModel

from privet._utils.tensors import gradient_dtype
from privet.errors import InvalidArgumentError, real

_FIX = "Earlier state would carry the data behind it into this run; create a new optimizer over the model as it is now."
_PUBLIC = ("state", "param_groups", "defaults")
_SEVERAL = (list, tuple)
# What is looked at by itself, or holds no state of an optimizer.
_OTHERS = (nn.Module, torch.optim.Optimizer, LRScheduler, type, types.FunctionType, types.MethodType, types.ModuleType)


def wrapped(optimizer: torch.optim.Optimizer) -> Iterator[torch.optim.Optimizer]:
    """Yield an optimizer, and the optimizers that it holds as attributes at any depth: its steps may step those in turn."""
    seen: set[int] = set()
    waiting = [optimizer]
    while waiting:
        outer = waiting.pop()
        if id(outer) not in seen:
            seen.add(id(outer))
            yield outer
            for value in vars(outer).values():
                if isinstance(value, torch.optim.Optimizer):
                    waiting.append(value)
                elif isinstance(value, _SEVERAL):
                    waiting += [each for each in value if isinstance(each, torch.optim.Optimizer)]


def check_fresh_optimizer(optimizer: torch.optim.Optimizer, parameters: Mapping[str, nn.Parameter]) -> None:
    """Refuse an optimizer that is not in the state that its constructor leaves.

    State, and tensors in attributes, must be blank (zeros, no steps), copies of the optimizer's parameters as they are now, which
    are public, or equal those of a new optimizer of the same class and options over copies of the parameters. Options may be
    numbers, which are settings, but not tensors. Hooks are allowed: they
    only see released values.

    Args:
        optimizer: optimizer of a new run; optimizers that it wraps are checked too.
        parameters: name → trainable parameter of the model.

    Raises:
        InvalidArgumentError: names the state and its parameter.
    """
    names = {id(parameter): name for name, parameter in parameters.items()}
    for each in wrapped(optimizer):
        _check_groups(each)
        _check_state(each, names)
        _check_attributes(each, names)


def check_scheduler(scheduler: LRScheduler, optimizer: torch.optim.Optimizer, steps: int, *, fresh: bool) -> None:
    """Refuse a scheduler that cannot take the run's steps.

    Such as one of another optimizer, one that ends before the last of `steps`, one whose steps need arguments, or, if `fresh`,
    one that has taken steps.

    Raises:
        InvalidArgumentError: says which.
    """
    kind = type(scheduler).__name__
    if not isinstance(scheduler, LRScheduler):
        raise InvalidArgumentError("scheduler", kind, "a torch.optim.lr_scheduler.LRScheduler")
    try:
        inspect.signature(scheduler.step).bind()
    except TypeError:
        raise InvalidArgumentError(
            "scheduler", kind, "one whose step() needs no arguments",
            "A metric of the training data would not be private; choose a schedule that is known in advance.",
        ) from None  # fmt: skip
    for each in (scheduler, *getattr(scheduler, "_schedulers", ())):
        if getattr(each, "optimizer", None) is not optimizer:
            raise InvalidArgumentError("scheduler", f"{kind} of another optimizer", "made for the optimizer of this training")
        if fresh and getattr(each, "last_epoch", 0) > 0:
            raise InvalidArgumentError(
                "scheduler", f"{kind} after {each.last_epoch} steps", "new: at step 0",
                "It counts the steps of the run; create a new one, with a schedule that starts at the first step.",
            )  # fmt: skip
    if isinstance(scheduler, OneCycleLR) and scheduler.total_steps < steps:
        raise InvalidArgumentError(
            "scheduler", f"OneCycleLR(total_steps={scheduler.total_steps})", f"of at least {steps} steps, which the plan takes",
            "It would end the run with an error after privacy has been spent. Use total_steps=plan.total_steps.",
        )  # fmt: skip


def check_average(average: AveragedModel, model: nn.Module, *, fresh: bool) -> None:
    """Refuse an average of another model, or, if `fresh`, one that already contains steps.

    Raises:
        InvalidArgumentError: says which.
    """
    if not isinstance(average, AveragedModel):
        raise InvalidArgumentError(
            "average", type(average).__name__, "a torch.optim.swa_utils.AveragedModel",
            "AveragedModel(model) is a uniform average; with multi_avg_fn=get_ema_multi_avg_fn(0.999), it is exponential.",
        )  # fmt: skip
    own, averaged = dict(model.named_parameters()), dict(average.module.named_parameters())
    if {name: value.shape for name, value in own.items()} != {name: value.shape for name, value in averaged.items()}:
        raise InvalidArgumentError("average", "of another model", "made from the trained model")
    for name, value in own.items():
        if value.requires_grad and gradient_dtype(value) != value.dtype:
            raise InvalidArgumentError(
                "average", f"of {name} in {value.dtype}", "of trained parameters in float32",
                "Rounding would remove most of its updates. Train in float32, with autocast for speed.",
            )  # fmt: skip
    if not fresh:
        return
    if int(average.n_averaged) > 0:
        raise InvalidArgumentError(
            "average", "of earlier steps", "new", "Parameters of earlier steps would carry their data into this run."
        )
    for name, value in own.items():
        if not torch.equal(value.detach(), averaged[name].detach().to(value)):
            raise InvalidArgumentError(
                "average", f"with another value of {name} than the model", "made from the model as it is now",
                "Create the average after the model has its initial parameters: AveragedModel(model).",
            )  # fmt: skip


def _check_groups(optimizer: torch.optim.Optimizer) -> None:
    """Refuse tensors among the options; constructors may keep arrays of settings in the defaults."""
    named = {f"group {number}": group for number, group in enumerate(optimizer.param_groups)}
    for where, options in {**named, "the defaults": optimizer.defaults}.items():
        for key, value in options.items():
            held = () if key == "params" else [leaf for _, leaf in _leaves(value)]
            for leaf in held:
                if isinstance(leaf, Tensor if options is optimizer.defaults else Tensor | np.ndarray) and np.prod(leaf.shape) > 1:
                    found = f"with a tensor of shape {tuple(leaf.shape)} in {key!r} of {where}"
                    raise InvalidArgumentError("optimizer", found, "one whose options are numbers", _FIX)
    for options in optimizer.param_groups:
        rate = options.get("lr")
        if isinstance(rate, Tensor | np.ndarray | np.generic) and np.prod(rate.shape) == 1:
            rate = rate.item()
        if rate is not None:  # not every optimizer has one, and some choose it themselves
            real("optimizer.lr", rate)


def _check_state(optimizer: torch.optim.Optimizer, names: Mapping[int, str]) -> None:
    if foreign := _foreign(optimizer):
        raise InvalidArgumentError(
            "optimizer",
            f"with state for {foreign}, which is not its parameter",
            "one with state for its own parameters only",
            _FIX,
        )
    if all(is_blank(state) for state in optimizer.state.values()):
        return
    twin = _twin(optimizer)
    clones = {} if twin is None else dict(zip(_members(optimizer), _members(twin), strict=True))
    for key, state in optimizer.state.items():
        whose = f" of {names.get(id(key), 'a frozen parameter')}" if isinstance(key, Tensor) else f" under {key!r}"
        if other := _find_other(state, None if twin is None else twin.state.get(clones.get(key, key)), _members(optimizer)):
            raise InvalidArgumentError("optimizer", f"with state from earlier steps ({other}{whose})", "new", _FIX)


def _check_attributes(optimizer: torch.optim.Optimizer, names: Mapping[int, str]) -> None:
    members = _members(optimizer)
    own = {*names, *map(id, members)}
    held = {name: value for name, value in _held(optimizer, names).items() if _holds_tensors(value, own)}
    twin = _twin(optimizer) if held else None
    others = {} if twin is None else _held(twin, {})
    for name, value in held.items():
        if other := _find_other({name: value}, {name: others.get(name)}, members):
            raise InvalidArgumentError(
                "optimizer", f"with tensors of its own in an attribute ({other})", "new, without values of earlier steps",
                "Zeros and copies of parameters as they are now may be there; let it create other tensors in its first step().",
            )  # fmt: skip


def _held(optimizer: torch.optim.Optimizer, names: Mapping[int, str]) -> dict[str, Any]:
    """Return name → what an optimizer holds in attributes of its own and of its parameters."""
    own = {name: _unfold(value) for name, value in _attributes(optimizer).items() if name not in _PUBLIC}
    for number, member in enumerate(_members(optimizer)):
        where = names.get(id(member), f"parameter {number}")
        own |= {f"{where}.{name}": _unfold(value) for name, value in vars(member).items()}
    return own


def _attributes(value: object) -> dict[str, Any]:
    """Return the attributes of an object, those in slots included."""
    kinds = type(value).__mro__
    slots = [
        name
        for kind in kinds
        for name, each in vars(kind).items()
        if type(each) is types.MemberDescriptorType and name != "__dict__"
    ]
    return {**{name: getattr(value, name) for name in slots if hasattr(value, name)}, **getattr(value, "__dict__", {})}


def _unfold(value: Any, depth: int = 4) -> Any:
    """Return the tensors of a value, with objects replaced by tables of their attributes, and None for anything else."""
    if isinstance(value, Mapping):
        return {key: _unfold(item, depth) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_unfold(item, depth) for item in value]
    if isinstance(value, Tensor | np.ndarray):
        return value
    if isinstance(value, _OTHERS) or not depth:
        return None
    return {name: _unfold(item, depth - 1) for name, item in _attributes(value).items()}


def _find_other(found: Any, expected: Any, members: Iterable[Tensor]) -> str:
    """Return the path of a value that is neither blank, nor as in a new optimizer, nor a copy of a parameter; "" if none is."""
    if is_blank(found) or _equal(found, expected):
        return ""
    others = (path or "values" for path, leaf in _leaves(found) if not is_blank(leaf) and not _is_copy(leaf, members))
    return next(others, "")


def _is_copy(value: Any, members: Iterable[Tensor]) -> bool:
    """Return whether a value is that of a parameter, as slow weights are at the start: public, as the parameters are."""
    return isinstance(value, Tensor) and any(_equal(value.detach(), member.detach()) for member in members)


def _twin(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer | None:
    """Return a new optimizer of the same class and options over copies of the parameters; None if that fails."""
    kind: Callable[..., torch.optim.Optimizer] = type(optimizer)
    groups = [
        {**group, "params": [nn.Parameter(member.detach().clone(), member.requires_grad) for member in group["params"]]}
        for group in optimizer.param_groups
    ]
    try:
        accepted = inspect.signature(kind).parameters.values()
        everything = any(each.kind is each.VAR_KEYWORD for each in accepted)
        known = {each.name for each in accepted}
        twin = kind(groups, **{key: value for key, value in optimizer.defaults.items() if everything or key in known})
        alike = len(_members(twin)) == len(_members(optimizer))
    except Exception:  # a constructor outside torch, with other arguments
        return None
    return twin if alike else None


def _members(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [member for group in optimizer.param_groups for member in group["params"]]


def _foreign(optimizer: torch.optim.Optimizer) -> str:
    """Return, in words, the first tensor with state that is not a parameter; "" if there is none."""
    own = {id(member) for member in _members(optimizer)}
    found = (key for key in optimizer.state if isinstance(key, Tensor) and id(key) not in own)
    return next((f"a tensor of shape {tuple(key.shape)}" for key in found), "")


def _leaves(value: Any, path: str = "") -> list[tuple[str, Any]]:
    """Return the values within nested containers, each with the path of its keys."""
    if isinstance(value, Mapping):
        return [leaf for key, item in value.items() for leaf in _leaves(item, f"{path}.{key}".lstrip("."))]
    if isinstance(value, list | tuple | set | frozenset):
        return [leaf for item in value for leaf in _leaves(item, path)]
    return [(path, value)]


def _holds_tensors(value: Any, own: Container[int]) -> bool:
    return any(isinstance(leaf, Tensor | np.ndarray) and id(leaf) not in own for _, leaf in _leaves(value))


def is_blank(value: Any) -> bool:
    """Return whether a value holds no information about steps: None, zero, False, text, or containers of these."""
    if isinstance(value, Tensor | np.ndarray):
        return not bool((value != 0).any())
    if isinstance(value, Mapping | list | tuple | set | frozenset):
        return all(is_blank(leaf) for _, leaf in _leaves(value))
    return value is None or isinstance(value, str) or (isinstance(value, int | float) and value == 0)


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one.shape == other.shape and one.dtype == other.dtype and torch.equal(one, other.to(one.device))
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return np.array_equal(one, other)
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_equal(value, other[key]) for key, value in one.items())
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_equal, one, other))
    if isinstance(one, Tensor | np.ndarray) or isinstance(other, Tensor | np.ndarray):
        return False
    return bool(one == other)
