"""Interception of the torch calls of user code during a pass: forbidden writes, random numbers, errors of one example."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch._ops import HigherOrderOperator
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from privet.errors import UnsupportedModelError
from privet.gradients.core.batching import is_batched, is_wrapped, list_leaves
from privet.gradients.core.consensus import SplitError
from privet.gradients.core.patches import patch_torch
from privet.gradients.core.randomness import Draw
from privet.gradients.core.recorder import UntraceableError
from privet.gradients.isolation import Guard
from privet.gradients.layers.memory_safety import REPLACED, REPLACED_TOGETHER, list_spellings
from privet.gradients.layers.random import RULES
from privet.gradients.methods.called_back import (
    CONTROL_FLOW,
    call_higher_order,
    dispatches_to_user,
    has_own_operators,
    is_called_back,
    is_foreign,
    watch,
)

_ACCESS = {"__get__", "__set__", "__delete__"}
_BACKWARD = {Tensor.backward, torch.autograd.backward}
_IN_PLACE_OPERATORS = {
    f"__i{name}__"
    for name in ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift", "matmul"]
}  # fmt: skip
_HARMLESS = {"requires_grad_", "detach_", "retain_grad", "__setitem__"}


class WriteError(UnsupportedModelError):
    """User code writes to something that outlives the pass."""


@functools.cache
def is_write(name: str) -> bool:
    """Return whether a torch function of this name writes to its first argument."""
    if name.startswith("__"):
        return name == "__setitem__" or name in _IN_PLACE_OPERATORS
    return name.partition(".")[0].endswith("_") and name not in _HARMLESS


def _find_written(name: str, args: Any, options: Any) -> list[Tensor]:
    """Return the tensors that a call writes to by its name or by its options; the check of a program sees other writes."""
    targets: list[Any] = []
    if is_write(name) or options.get("inplace"):
        targets += args[:1] or [options]  # initialisers pass on all arguments by name
    if options.get("out") is not None:
        targets.append(options["out"])
    return [x for x in list_leaves(targets) if isinstance(x, Tensor)] if targets else []


@functools.lru_cache(maxsize=4096)
def _is_watched(func: Any, name: str) -> bool:
    known = func in _BACKWARD or func in _RENORMALISING or isinstance(func, HigherOrderOperator)
    return known or name in HOOKS or is_write(name)


class GuardedCalls(TorchFunctionMode):
    """Intercepts torch calls in every pass: refuses writes to parameters and backward(), takes random numbers from the pass.

    Args:
        draw: random numbers of the current example; None where the global generators are seeded for it.
    """

    def __init__(self, guard: Guard, draw: Draw | None, examples: int = 1) -> None:
        super().__init__()
        patch_torch()
        self._guard, self._draw, self._examples = guard, draw, examples
        self._failure: BaseException | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options, name = kwargs or {}, getattr(func, "__name__", "")
        try:
            if name in _ACCESS:
                return self._access_attribute(func, name, args)
            if not _INERT.issuperset(map(type, (*args, *options.values()))) and name not in HOOKS:
                args, options = tuple(map(self._replace, args)), {key: self._replace(x) for key, x in options.items()}
            written: Sequence[Tensor] = ()
            if _is_watched(func, name) or options.get("inplace") or options.get("out") is not None:
                written = _find_written(name, args, options)
                self._check_call(func, name, args, options, written)
                if isinstance(func, HigherOrderOperator):
                    return self.call_higher_order(func, args, options)
            rule = None if self._draw is None else RULES.get(func)
            if rule is not None:
                found = rule(self._draw, *self.prepare_arguments(args), **self.prepare_arguments(options))
                if found is not NotImplemented:
                    return found
            dispatching = next(filter(dispatches_to_user, types), None) if types else None
            if dispatching is not None:
                return self.call_class(dispatching, func, types, args, options, written)
            return self.call(REPLACED.get(func, func), name, args, options, written)
        except BaseException as error:
            self.note_failure(error, name, args, options)
            raise

    def note_failure(self, error: BaseException, name: str, args: Any, options: Any) -> None:
        """Note that a call failed: of interest in a pass over several examples."""

    def _replace(self, x: Any) -> Any:
        """Return an argument, a function as one that is watched; None for a generator, which examples would share."""
        if type(x) is torch.Generator:
            return None
        return watch(self, x) if is_called_back(x) else x

    def call_class(self, kind: Any, func: Any, types: Any, args: Any, options: Any, written: Sequence[Tensor]) -> Any:
        """Call a permitted function through another library's class of tensors, whose own calls are intercepted."""
        with self:
            return kind.__torch_function__(func, types, args, options)

    def _check_call(self, func: Any, name: str, args: Any, options: Any, written: Sequence[Tensor]) -> None:
        """Refuse a call of backward(), and one that writes to a parameter or puts a hook on it."""
        if func in _BACKWARD:
            raise UnsupportedModelError(
                "the model or loss calls backward() itself; Privet computes, clips and noises gradients: return the loss"
            )
        if any(not is_batched(x) and self._guard.is_protected(x) for x in written):
            raise WriteError(_WRITTEN)
        if func in _RENORMALISING and (args[3] if len(args) > 3 else options.get("max_norm")) is not None:
            raise WriteError(_WRITTEN)
        if name in HOOKS and not is_batched(args[0]) and self._guard.is_protected(args[0]):
            raise UnsupportedModelError(
                "the model or loss puts a hook on a parameter while it runs, where it would remain; register hooks before "
                "training"
            )

    def call_higher_order(self, operator: Any, args: Any, options: Any) -> Any:
        """Call an operator that takes functions."""
        return call_higher_order(self, operator, args, options)

    def prepare_arguments(self, arguments: Any) -> Any:
        """Return the arguments of a function that draws random numbers."""
        return arguments

    def call(self, func: Any, name: str, args: Any, options: Any, written: Sequence[Tensor]) -> Any:
        """Call a permitted function, which writes to the tensors `written`."""
        return func(*args, **options)

    def _access_attribute(self, func: Any, name: str, args: Any) -> Any:
        if name == "__get__":
            if func == _DATA_GET and not is_batched(args[0]):
                # `.data` is an alias without version counter: writes to parameters would go unnoticed.
                return args[0].detach()
            return func(*args)
        if func == _GRAD_SET and args[1] is not None:
            raise UnsupportedModelError(
                "the model or loss writes to .grad itself; Privet computes, clips and noises gradients: return the loss"
            )
        if name == "__set__" and func not in _RESTORED and not is_batched(args[0]) and self._guard.is_protected(args[0]):
            if func != _DATA_SET or not _is_same(args[0], args[1]):
                raise WriteError(_WRITTEN)
            return None
        return func(*args)


def _is_same(tensor: Tensor, data: object) -> bool:
    """Return whether this data is the tensor's own, as when a layer of bitsandbytes assigns it to `.data`."""
    return (
        isinstance(data, Tensor)
        and not is_batched(data)
        and (data.data_ptr(), data.shape, data.stride(), data.dtype, data.device)
        == (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype, tensor.device)
    )


HOOKS = {"register_hook", "register_post_accumulate_grad_hook"}
# Functions that would show the physical tensor behind one example's.
EXPOSING = {
    "untyped_storage", "storage", "_typed_storage", "data_ptr", "__reduce_ex__", "__repr__", "__format__", "__deepcopy__",
}  # fmt: skip
_RENORMALISING = {F.embedding, F.embedding_bag}
# Kinds of nearly all arguments, which are neither generators nor functions.
_INERT = {
    Tensor, torch.nn.Parameter, int, float, bool, complex, str, type(None), tuple, list, slice, torch.Size, torch.dtype,
    torch.device, torch.layout, torch.memory_format, type(...), bytes,
}  # fmt: skip
_TENSOR: Any = Tensor
_DATA_GET = _TENSOR.data.__get__
_DATA_SET, _GRAD_SET = _TENSOR.data.__set__, _TENSOR.grad.__set__
_RESTORED = (_GRAD_SET, _TENSOR.requires_grad.__set__)  # what a pass may set of parameters, too
# Functions whose batching rule, or the rule of their gradient, is wrong in some version of torch; and those whose results have a
# scale for each example, of which torch would keep one. Observers of quantisation-aware training also write to a range that all
# examples would share, and neither the function's name nor vmap shows this.
_QUANTISING = ("quantize_per_tensor", "quantize_per_tensor_dynamic", "quantize_per_channel")
UNRELIABLE = {
    torch.select_scatter, Tensor.select_scatter, Tensor.as_strided_, getattr(F, "linear_cross_entropy", None),
    torch.fused_moving_avg_obs_fake_quant,
    *list_spellings(*_QUANTISING),
} - {None}  # fmt: skip
_WRITTEN = (
    "the model or loss writes to a parameter, or to a large tensor that it holds, while it runs on an example: the result would "
    "be released without noise; write to nothing that outlives the forward pass (an embedding's max_norm and restarted "
    "codebooks do), or keep it in a buffer"
)


class SharedCalls(GuardedCalls):
    """Intercepts torch calls in a pass over several examples, or clients, each of which user code sees alone inside vmap."""

    def note_failure(self, error: BaseException, name: str, args: Any, options: Any) -> None:
        """Note the first call that may have failed for one example of several, or because Privet gives the pass up."""
        if isinstance(error, SplitError | UntraceableError):
            error.call = error.call or name
        if self._failure is None:
            given_up, leaves = isinstance(error, SplitError | UntraceableError), list_leaves((args, options))
            if given_up or (self._examples > 1 and any(is_wrapped(x) or is_called_back(x) for x in leaves)):
                self._failure = error

    def give_up(self, reason: str) -> None:
        """Raise an UntraceableError here and, if user code catches it, at the end of the pass."""
        self._failure = self._failure or UntraceableError(reason)
        raise self._failure

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        """End the interception, and raise the first error of a call even if user code caught it.

        Caught, it would put all examples on the path that was meant for the one that caused it.
        """
        super().__exit__(kind, error, traceback)  # type: ignore[no-untyped-call]
        failure, self._failure = self._failure, None
        try:
            if failure is not None and failure is not error and not isinstance(error, KeyboardInterrupt):
                raise failure from None
        finally:
            del failure, error, traceback  # this frame is in a traceback now: references to it would keep tensors alive

    def call(self, func: Any, name: str, args: Any, options: Any, written: Sequence[Tensor]) -> Any:
        """Call a permitted function by vmap's batching rule."""
        if name in EXPOSING and args and is_wrapped(args[0]):
            return self.copy_or_refuse(name, args)
        if func in UNRELIABLE:
            raise UntraceableError("a function is called that torch computes otherwise for several examples than for one")
        leaves = list(list_leaves((args, options)))
        if any(isinstance(x, Tensor) and has_own_operators(type(x)) for x in leaves):
            raise UntraceableError("a class of tensors of another library would receive the tensor of all examples")
        if is_foreign(func) and any(map(is_wrapped, leaves)):
            raise UntraceableError("a custom operator is called, whose batching rule is unknown")
        return super().call(REPLACED_TOGETHER.get(func, func), name, args, options, written)

    def call_higher_order(self, operator: Any, args: Any, options: Any) -> Any:
        """Call an operator that is control flow; functions of others would receive the tensors of all examples."""
        if operator.name() not in CONTROL_FLOW:
            raise UntraceableError("an operator is called that takes functions")
        return super().call_higher_order(operator, args, options)

    def copy_or_refuse(self, name: str, args: Any) -> Any:
        """Return what a function of a tensor's text or memory may give away: a copy, or the text of a number."""
        if name == "__deepcopy__":
            return args[0].clone()
        if name == "__format__" and not args[0].dim():
            return self.call(Tensor.item, "item", args[:1], {}, ()).__format__(*args[1:])
        raise UntraceableError("the text or the memory of a tensor is read, which holds all examples")
