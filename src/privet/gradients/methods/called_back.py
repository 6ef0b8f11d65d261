"""User code that torch itself calls inside an intercepted function: its own calls of torch are intercepted as well.

torch takes a mode off the stack while the mode handles a function. Programs that need this pass a distance function to a loss
(`nn.TripletMarginWithDistanceLoss`), or branches to `torch.cond`.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack

from privet.errors import UnsupportedModelError
from privet.gradients.core.handlers import has_operators

_DEEPEST = 4


def is_called_back(x: object) -> bool:
    """Return whether an argument is a function that torch will call, such as a distance function or a hook."""
    return callable(x) and not isinstance(x, type | Tensor)


def watch(mode: TorchFunctionMode, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function whose calls of torch go through the mode, whoever calls it."""

    def watched(*args: Any, **options: Any) -> Any:
        active = mode in _get_current_function_mode_stack()
        with contextlib.nullcontext() if active else mode:
            return function(*args, **options)

    return watched


def call_higher_order(mode: TorchFunctionMode, operator: Any, args: Any, options: Any) -> Any:
    """Call an operator that takes functions, such as `torch.cond`: control flow as Python's, others if they use no parameter.

    torch lifts what such functions use only when it compiles them: else, a parameter would have no gradient.
    """
    flow = CONTROL_FLOW.get(operator.name())
    if flow is not None:
        with mode:
            return flow(*args, **options)
    functions = [x for x in (*args, *options.values()) if is_called_back(x)]
    if any(tensor.requires_grad for function in functions for tensor in _list_used(function)):
        raise UnsupportedModelError(
            f"the model or loss passes functions that use parameters to torch's operator {operator.name()}, which gives these no "
            "gradient; pass the parameters as arguments, or write the operation without the operator"
        )
    return operator(*args, **options)


def _choose(pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: Sequence[Any] = ()) -> Any:
    return (true_fn if pred else false_fn)(*operands)


def _repeat(
    cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried: Sequence[Any], additional: Sequence[Any] = ()
) -> Any:
    while cond_fn(*carried, *additional):
        carried = body_fn(*carried, *additional)
    return carried


CONTROL_FLOW: dict[str, Callable[..., Any]] = {"cond": _choose, "while_loop": _repeat}


def _list_used(function: Any, depth: int = 0) -> Iterator[Tensor]:
    if isinstance(function, Tensor):
        yield function
    elif isinstance(function, nn.Module):
        yield from function.parameters()
    elif depth < _DEEPEST:
        cells = getattr(function, "__closure__", None) or ()
        held = [cell.cell_contents for cell in cells]
        if isinstance(function, functools.partial):
            held += [function.func, *function.args, *function.keywords.values()]
        for part in (*held, *filter(None, [getattr(function, "__self__", None)])):
            yield from _list_used(part, depth + 1)


_KNOWN_LIBRARIES = {"aten", "prims", "torchvision", "torchaudio", "privet"}


@functools.lru_cache(maxsize=4096)
def is_foreign(func: Any) -> bool:
    """Return whether a function is a custom operator of another library, whose batching rules are not torch's."""
    library = getattr(func, "namespace", None) or getattr(func, "_qualified_op_name", "").partition("::")[0]
    return isinstance(library, str) and bool(library) and library not in _KNOWN_LIBRARIES


@functools.cache
def dispatches_to_user(kind: type) -> bool:
    """Return whether calls with tensors of this class go through a `__torch_function__` or dispatch of another library."""
    if kind.__module__.partition(".")[0] in ("torch", "privet") or has_operators(kind.__module__):
        return False
    return _dispatch_of(kind) not in _OF_TORCH or has_own_operators(kind)


@functools.cache
def has_own_operators(kind: Any) -> bool:
    """Return whether operators below autograd call another library's class with the physical batch; torchao's go row by row."""
    own = kind.__torch_dispatch__ is not Tensor.__torch_dispatch__
    return own and kind.__module__.partition(".")[0] not in ("torch", "privet", "torchao")


def _dispatch_of(kind: Any) -> object:
    return getattr(kind.__torch_function__, "__func__", kind.__torch_function__)


_OF_TORCH = {_dispatch_of(Tensor), _dispatch_of(torch.nn.Parameter)}
