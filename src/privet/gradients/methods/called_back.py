"""User code that torch itself calls inside an intercepted function: its own calls are intercepted as well.

torch takes a mode off the stack while the mode handles a function.
"""

from __future__ import annotations

__all__ = ["differentiate_inside", "dispatches_to_user", "has_own_operators", "is_called_back", "watch"]

import contextlib
import functools
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import get_gradient_edge
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack

from privet.gradients.core.handlers import has_operators


def is_called_back(x: object) -> bool:
    """Return whether an argument is a function that torch will call, such as a distance function or a hook."""
    return callable(x) and not isinstance(x, type)


def watch(mode: TorchFunctionMode, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function whose calls of torch go through the mode, whoever calls it."""
    kind: Any = type(function)
    return _class_like(kind)(mode, function)


class _Watched:
    def __init__(self, mode: TorchFunctionMode, function: Callable[..., Any]) -> None:
        self._mode, self._function = mode, function

    def __call__(self, *args: Any, **options: Any) -> Any:
        with contextlib.nullcontext() if self._mode in _get_current_function_mode_stack() else self._mode:
            return self._function(*args, **options)


@functools.cache
def _class_like(kind: Any) -> type[_Watched]:
    """Return a class of the same name, which torch's messages show."""
    return type(kind.__name__, (_Watched,), {})


def differentiate_inside(
    mode: TorchFunctionMode, outputs: Any, inputs: Any, grad_outputs: Any = None, *args: Any, **options: Any
) -> Any:
    """Call `torch.autograd.grad` inside the mode, which then intercepts calls of hooks and of autograd functions.

    It takes graph edges, because a call with tensors would itself be intercepted again.
    """
    starts, ends = _as_tuple(outputs), _as_tuple(inputs)
    if not all(map(_has_plain_graph, (*starts, *ends))) or options.get("materialize_grads") or len(args) > 5:
        return torch.autograd.grad(outputs, inputs, grad_outputs, *args, **options)
    if grad_outputs is None and all(x.numel() == 1 for x in starts):
        grad_outputs = [torch.ones_like(x) for x in starts]
    first, last = ([get_gradient_edge(x) for x in tensors] for tensors in (starts, ends))
    with mode:
        return torch.autograd.grad(first, last, grad_outputs, *args, **options)


def _has_plain_graph(x: object) -> bool:
    return isinstance(x, Tensor) and x.requires_grad and not torch._C._functorch.is_functorch_wrapped_tensor(x)


def _as_tuple(tensors: Any) -> tuple[Any, ...]:
    return (tensors,) if isinstance(tensors, Tensor) else tuple(tensors)


@functools.cache
def dispatches_to_user(kind: type) -> bool:
    """Return whether calls with tensors of this class go through a `__torch_function__` or dispatch that a user wrote."""
    if _is_from(kind, "torch", "privet") or has_operators(kind.__module__):
        return False
    return _dispatch_of(kind) not in _OF_TORCH or has_own_operators(kind)


@functools.cache
def has_own_operators(kind: Any) -> bool:
    """Return whether operators below autograd call a class of the user's, with the physical batch.

    Those of torchao compute row by row.
    """
    return kind.__torch_dispatch__ is not Tensor.__torch_dispatch__ and not _is_from(kind, "torch", "privet", "torchao")


def _is_from(kind: type, *packages: str) -> bool:
    """Return whether a class is where it says that it is, in one of these packages."""
    return (
        kind.__module__.partition(".")[0] in packages and getattr(sys.modules.get(kind.__module__), kind.__name__, None) is kind
    )


def _dispatch_of(kind: Any) -> object:
    return getattr(kind.__torch_function__, "__func__", kind.__torch_function__)


_OF_TORCH = {_dispatch_of(Tensor), _dispatch_of(torch.nn.Parameter)}
