"""User code that torch itself calls inside an intercepted function: its own calls are intercepted as well.

torch takes a mode off the stack while the mode handles a function.
"""

from __future__ import annotations

__all__ = [
    "CONTROL_FLOW",
    "call_higher_order",
    "call_operator",
    "differentiate_inside",
    "dispatches_to_user",
    "has_own_operators",
    "is_called_back",
    "is_foreign",
    "is_unseen",
    "may_be_asked",
    "shield",
    "watch",
]

import contextlib
import functools
import sys
import threading
import types
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack

from privet.errors import UnsupportedModelError
from privet.gradients.core.batching import SEQUENCES
from privet.gradients.core.handlers import has_operators
from privet.gradients.core.state.reachable import OPERATOR_DEFINITIONS, find_reachable


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
        with _enter(self._mode):
            return self._function(*args, **options)


def _enter(mode: TorchFunctionMode) -> contextlib.AbstractContextManager[Any]:
    """Return a context inside the mode, which may be active already."""
    return contextlib.nullcontext() if mode in _get_current_function_mode_stack() else mode


@functools.cache
def _class_like(kind: Any) -> type[_Watched]:
    """Return a class of the same name, which torch's messages show."""
    return type(kind.__name__, (_Watched,), {})


def shield(mode: TorchFunctionMode, x: Any) -> Any:
    """Return an argument whose methods, if torch asks it for a number, a length or an item, run inside the mode.

    torch calls methods of lists, of indices and of arrays that a user wrote, such as `__index__`.
    """
    kind: Any = type(x)
    if kind is slice:
        return slice(*(shield(mode, part) for part in (x.start, x.stop, x.step)))
    if kind in (tuple, list):
        return kind(shield(mode, part) for part in x)
    if is_called_back(x):
        return watch(mode, x)
    if may_be_asked(x):
        if not isinstance(x, SEQUENCES):
            return _shield_class(kind)(mode, x)
        with _enter(mode):
            return [shield(mode, part) for part in x]
    if isinstance(x, SEQUENCES) and not kind.__module__.startswith("torch"):
        return [shield(mode, part) for part in x]  # a plain one: to make one of its class would call that
    return x


def may_be_asked(x: Any) -> bool:
    """Return whether torch may call methods of an argument that are written in Python."""
    kind: Any = type(x)
    return kind not in _NUMBERS and bool(_asked_methods(kind))


class _Shielded:
    def __init__(self, mode: TorchFunctionMode, value: Any) -> None:
        self._mode, self._value = mode, value


@functools.lru_cache(maxsize=1024)
def _shield_class(kind: Any) -> type[_Shielded]:
    return type(kind.__name__, (_Shielded,), {name: _delegate(name) for name in _asked_methods(kind)})


def _delegate(name: str) -> Any:
    """Return a method, or a property, that is the value's own inside the mode, and whose result is shielded again."""

    def ask(shielded: _Shielded, *args: Any, **options: Any) -> Any:
        with _enter(shielded._mode):
            found = getattr(shielded._value, name)
            found = found if name in _PROPERTIES else found(*args, **options)
            found = iter([shield(shielded._mode, part) for part in found]) if name == "__iter__" else found
        return shield(shielded._mode, found) if name == "__getitem__" else found

    return property(ask) if name in _PROPERTIES else ask


@functools.lru_cache(maxsize=1024)
def _asked_methods(kind: Any) -> tuple[str, ...]:
    """Return the methods and properties written in Python that torch may ask objects of a class for."""
    if issubclass(kind, _UNASKED) or kind.__module__.partition(".")[0] in ("torch", "numpy") or hasattr(kind, "keys"):
        return ()
    return tuple(name for name in (*_ASKED, *_PROPERTIES) if isinstance(getattr(kind, name, None), _WRITTEN))


_ASKED = (
    "__index__", "__len__", "__getitem__", "__iter__", "__array__", "__float__", "__int__", "__bool__", "__complex__",
    "__dlpack__", "__dlpack_device__", "__buffer__",
)  # fmt: skip
_PROPERTIES = ("__array_interface__", "__array_struct__", "__cuda_array_interface__")
_NUMBERS = {int, float, bool, type(None), Tensor, nn.Parameter}
_UNASKED = (Tensor, nn.Module, int, float, complex, str, bytes, dict, type)  # torch reads numbers and text without their methods
_WRITTEN = (types.FunctionType, property)


def call_higher_order(mode: TorchFunctionMode, operator: Any, args: Any, options: Any) -> Any:
    """Call an operator that takes functions, such as `torch.cond`, which are watched.

    torch lifts what these functions use besides their arguments only when it compiles them: without, it would have no gradient.
    So control flow runs as Python's, and the functions of other operators must use nothing that is trained.

    Raises:
        UnsupportedModelError: the functions use parameters.
    """
    flow = CONTROL_FLOW.get(operator.name())
    if flow is not None:
        with mode:
            return flow(*args, **options)
    functions = [x for x in (*args, *options.values()) if is_called_back(x)]
    if any(map(_asks_for_gradients, _find_used(functions))):
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


def _find_used(functions: Sequence[Any]) -> list[Any]:
    """Return what functions use besides their arguments, and what the functions use that they use, directly or not."""
    used = list(functions)
    known = set(map(id, used))
    for value in used:
        value = value._function if isinstance(value, _Watched) else value
        more = {} if isinstance(value, nn.Module | Tensor | type | types.ModuleType) else find_reachable(value)
        used += [x for x in more.values() if is_called_back(x) or isinstance(x, Tensor) if id(x) not in known]
        known |= set(map(id, more.values()))
    return used


def _asks_for_gradients(value: object) -> bool:
    tensors = value.parameters() if isinstance(value, nn.Module) else [value]
    return any(isinstance(x, Tensor) and x.requires_grad for x in tensors)


_running = threading.local()  # `mode` is that in which this thread calls an operator
_KNOWN_LIBRARIES = {"aten", "prims", "torchvision", "torchaudio", "privet"}


def is_foreign(func: Any) -> bool:
    """Return whether a function is a custom operator of another library, whose batching rules are not torch's."""
    return isinstance(library := _library_of(func), str) and library not in _KNOWN_LIBRARIES


def _library_of(func: Any) -> str | None:
    return getattr(func, "namespace", None) or getattr(func, "_qualified_op_name", "").partition("::")[0] or None


def call_operator(mode: TorchFunctionMode, operator: Any, args: Any, options: Any) -> Any:
    """Call an operator; the Python functions of one that was made by torch's `custom_op` have their calls intercepted."""
    definition = OPERATOR_DEFINITIONS.get(_qualify(operator))
    if definition is None:
        return operator(*args, **options)
    for device, kernel in definition._backend_fns.items():
        definition._backend_fns[device] = _watch_where_it_runs(kernel)
    if definition._setup_context_fn is not None:
        definition._setup_context_fn = _watch_where_it_runs(definition._setup_context_fn)
    before, _running.mode = getattr(_running, "mode", None), mode
    try:
        return operator(*args, **options)
    finally:
        _running.mode = before


def is_unseen(operator: Any) -> bool:
    """Return whether an operator may be computed by Python functions that `call_operator` does not know of."""
    name = _qualify(operator)
    return is_foreign(operator) and name not in OPERATOR_DEFINITIONS and not has_operators(name.partition("::")[0])


def _qualify(operator: Any) -> str:
    return str(getattr(operator, "_qualified_op_name", None) or operator.name().partition(".")[0])


def _watch_where_it_runs(plain: Any) -> Any:
    """Return a function whose calls of torch go through the mode in which its thread calls an operator, if any."""
    if isinstance(plain, _OfOperator):
        return plain
    return functools.update_wrapper(_OfOperator(plain), plain)


class _OfOperator:
    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *args: Any, **options: Any) -> Any:
        mode = getattr(_running, "mode", None)
        with contextlib.nullcontext() if mode is None else _enter(mode):
            return self._function(*args, **options)


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
