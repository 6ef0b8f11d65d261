"""Interception of the torch calls of user code in a pass over a physical batch: dispatch to rules, or to torch's batching."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from privet.gradients.core.batching import (
    SEQUENCES,
    check_not_nested,
    is_batched,
    is_differentiable,
    is_leaf,
    is_wrapped,
    list_leaves,
)
from privet.gradients.core.consensus import agree_on_kinds
from privet.gradients.core.examples import is_stackable
from privet.gradients.core.handlers import HANDLERS, OPERATORS, has_operators
from privet.gradients.core.randomness import Draw, Draws
from privet.gradients.core.recorder import Recorder, UntraceableError
from privet.gradients.isolation import Guard
from privet.gradients.layers.indexing import INDEXED, resolve_index
from privet.gradients.layers.memory_safety import REPLACED_TOGETHER
from privet.gradients.methods.called_back import has_own_operators, is_called_back, is_foreign
from privet.gradients.methods.calls import EXPOSING, HOOKS, UNRELIABLE, SharedCalls, is_write
from privet.gradients.methods.functions import call_function

_FACTORIES = {
    *(f"{name}{kind}" for name in ("zeros", "ones", "empty", "full") for kind in ("", "_like")),
    *(f"new_{name}" for name in ("zeros", "ones", "empty", "full", "tensor")),
    "arange", "tensor", "eye", "clone", "linspace", "as_tensor",
}  # fmt: skip
_TENSOR: Any = Tensor
_GRAD_FN_GET, _LEAF_GET, _ASKED_GET = _TENSOR.grad_fn.__get__, _TENSOR.is_leaf.__get__, _TENSOR.requires_grad.__get__


class ExampleCalls(SharedCalls):
    """Intercepts torch calls in a pass over a physical batch, where user code sees one example inside vmap.

    Args:
        batched_from_the_start: whether new tensors are created per example, as the model may write into them.
    """

    def __init__(self, guard: Guard, recorder: Recorder, draws: Draws, *, batched_from_the_start: bool) -> None:
        super().__init__(guard, Draw(draws, recorder.token), recorder.examples)
        self.recorder, self._fresh = recorder, batched_from_the_start

    @contextlib.contextmanager
    def for_token(self, token: Tensor) -> Iterator[None]:
        """Return a context that intercepts calls inside a vmap that was entered again."""
        before, self._draw = self._draw, Draw(self.recorder.draws, token)
        try:
            with self:
                yield
        finally:
            self._draw = before

    @contextlib.contextmanager
    def _isolate_again(self, token: Tensor) -> Iterator[None]:
        with self._guard.isolate(), self.for_token(token):
            yield

    def call_function(self, function: Any, arguments: Sequence[Any]) -> Any:
        """Call an autograd function of the user's."""
        return call_function(self._isolate_again, self.recorder, function, arguments)

    def call_class(self, kind: Any, func: Any, types: Any, args: Any, options: Any, written: Sequence[Tensor]) -> Any:
        """Call a function by its rule; a class of another library would compute on several examples unseen."""
        if func not in HANDLERS or has_own_operators(kind):
            raise UntraceableError("a function is called through another library's class of tensors")
        return self.call(func, getattr(func, "__name__", ""), args, options, written)

    def prepare_arguments(self, arguments: Any) -> Any:
        """Return the arguments of a function that draws random numbers, with per-example copies of parameters."""
        if self.recorder.frees_parameters:
            _refuse_freed(arguments)
        return pytree.tree_map(lambda x: self._copy_parameter(x) if _requires_grad(x) else x, arguments, is_leaf=is_leaf)

    def call(self, func: Any, name: str, args: Any, options: Any, written: Sequence[Tensor]) -> Any:
        """Call a function: by its rule, or by vmap's batching rule with per-example copies of parameters."""
        if name == "requires_grad_" and is_batched(args[0]):  # as hosts ask of inputs of checkpointed parts; torch refuses it
            if self.recorder.twice and not is_differentiable(args[0]):
                self.recorder.ask_gradient(args[0])
            return args[0]
        recorder = self.recorder
        if recorder.frees_parameters:
            _refuse_freed((args, options))
        if name in EXPOSING and args and is_wrapped(args[0]):
            return self.copy_or_refuse(name, args)
        if name in HOOKS:
            raise UntraceableError("a hook on a tensor would receive the gradients of all examples, or their sum")
        if func in INDEXED and len(args) > 1:
            indices = resolve_index(recorder, args[1])
            if indices is not None:
                args = (args[0], indices, *args[2:])
        batched, asking, foreign = _inspect(args, options)
        if batched and foreign:
            raise UntraceableError("a class of tensors of another library would receive the tensor of all examples")
        if batched and func is torch.autograd.grad:
            return self._differentiate(*args, **options)
        if batched and func in UNRELIABLE:
            raise UntraceableError("a function is called that torch computes otherwise for several examples than for one")
        if written and any(not is_batched(x) and (batched or recorder.has_used(x)) for x in written):
            raise UntraceableError("values of an example are written into a tensor that all examples share")
        followed, twice = [], recorder.twice
        if asking and torch.is_grad_enabled():
            check_not_nested(recorder.token)
            followed = list(filter(recorder.follow, asking))
        handler = HANDLERS.get(func)
        applies = handler is not None and ((handler.always and (batched or followed)) or (batched and followed))
        if handler is not None and applies and not (followed and (handler.direct or twice)):
            found = recorder.call(handler, args, options, batched)
            if found is not None:
                return found
        if not batched:
            if asking and is_foreign(func):
                raise UntraceableError("parameters go through user code whose backward pass would receive the sum of gradients")
            return self._call_shared(func, name, args, options)
        if followed:
            args, options = self.prepare_arguments(args), self.prepare_arguments(options)
            if handler is not None and handler.always:
                found = recorder.call(handler, args, options, _inspect(args, options)[0])
                if found is not None:
                    return found
        elif asking and torch.is_grad_enabled():
            args, options = pytree.tree_map(lambda x: x.detach() if _requires_grad(x) else x, (args, options), is_leaf=is_leaf)
        if is_foreign(func):
            rule = OPERATORS.get(str(getattr(func, "_qualified_op_name", None) or getattr(func, "_name", "")))
            found = None if rule is None or followed else recorder.call(rule, args, options, batched)
            if found is None:
                raise UntraceableError("a custom operator is called, whose batching rule is unknown")
            return found
        func = REPLACED_TOGETHER.get(func, func)
        try:
            return func(*args, **options)
        except RuntimeError as error:
            if written or is_write(name) or "randomness" in str(error):
                raise
            return self._one_by_one(func, args, options)

    def _access_attribute(self, func: Any, name: str, args: Any) -> Any:
        if name == "__get__" and func in (_GRAD_FN_GET, _LEAF_GET, _ASKED_GET):
            # A batched tensor never requires a gradient itself; whether the physical one does, depends on no example.
            asked = is_differentiable(args[0])
            if func == _GRAD_FN_GET and asked:
                raise UntraceableError("the grad_fn of a tensor is read; hooks there would receive the sum of gradients")
            # A package whose operators have rules chooses by it between these operators and autograd functions of its own.
            if is_batched(args[0]) and not has_operators(sys._getframe(2).f_globals.get("__name__", "")):
                return {_GRAD_FN_GET: None, _LEAF_GET: not asked, _ASKED_GET: asked}[func]
        return super()._access_attribute(func, name, args)

    def _call_shared(self, func: Any, name: str, args: Any, options: Any) -> Any:
        found = func(*args, **options)
        if not self._fresh or name not in _FACTORIES or not isinstance(found, Tensor) or found.requires_grad:
            return found
        recorder = self.recorder
        return recorder.run_on_physical_batch(lambda token: found.expand(len(token), *found.shape).clone(), recorder.token)

    def _differentiate(
        self, outputs: Any, inputs: Any, grad_outputs: Any = None, retain_graph: bool | None = None, create_graph: bool = False,
        only_inputs: bool = True, allow_unused: bool | None = None, **options: Any,
    ) -> Any:  # fmt: skip
        ends, starts, weights = ([x] if isinstance(x, Tensor) else list(x or []) for x in (outputs, inputs, grad_outputs))
        if any(options.values()):
            raise UntraceableError(f"gradients are taken with options such as {', '.join(options)}")
        return self.recorder.differentiate(ends, starts, weights or [None] * len(ends), create_graph=create_graph)

    def _copy_parameter(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled() and self.recorder.follow(x):
            return self.recorder.per_example_copy(x)
        return x.detach()

    def _one_by_one(self, func: Any, args: Any, options: Any) -> Any:
        """Call a function that vmap cannot batch, such as `torch.unique`, for a copy of each example's tensors in turn."""
        leaves, tree = pytree.tree_flatten((tuple(args), dict(options)), is_leaf=is_leaf)
        if any(map(is_called_back, leaves)):
            raise UntraceableError("a function of the user's would be called for one example after another, unseparated")
        where = [place for place, leaf in enumerate(leaves) if is_batched(leaf)]
        trees: list[Any] = []

        def below(*physical: Tensor) -> tuple[Tensor, ...]:
            results, state = [], torch.get_rng_state()
            for position in range(self.recorder.examples):
                rows = [tensor[position].clone() for tensor in physical]
                for place, row in zip(where, rows, strict=True):
                    leaves[place] = row
                arguments, named = pytree.tree_unflatten(leaves, tree)
                found, spec = pytree.tree_flatten(func(*arguments, **named))
                if not found or not all(map(is_stackable, found)) or any(_shares_memory(x, leaves) for x in found):
                    raise UntraceableError("a function that vmap cannot batch returns no new tensors")
                results.append((found, spec))
            if not torch.equal(state, torch.get_rng_state()):
                raise UntraceableError("random numbers are drawn from a generator that examples would share")
            agree_on_kinds([(str(spec), tuple((x.shape, x.dtype) for x in found)) for found, spec in results])
            trees.append(results[0][1])
            return tuple(torch.stack(column) for column in zip(*(found for found, _ in results), strict=True))

        made = self.recorder.run_on_physical_batch(below, *(leaves[place] for place in where))
        return pytree.tree_unflatten(list(made), trees[0])


def _shares_memory(result: Tensor, leaves: Sequence[Any]) -> bool:
    """Return whether a result is a view of an argument: what is written to it would be written in vain."""
    strided = (x for x in leaves if isinstance(x, Tensor) and x.layout is torch.strided)
    return bool(result.numel()) and any(x.untyped_storage().data_ptr() == result.untyped_storage().data_ptr() for x in strided)


def _refuse_freed(arguments: Any) -> None:
    """Refuse to read a parameter outside its module, which alone has its values: the memory of others is freed."""
    for x in list_leaves(arguments):
        if isinstance(x, torch.nn.Parameter) and x.numel() and not x.untyped_storage().size():
            raise UntraceableError("a parameter is read outside its module")


def _requires_grad(x: object) -> bool:
    return isinstance(x, Tensor) and x.requires_grad


def _inspect(args: Any, options: Any) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """Return the batched tensors among the arguments, the unbatched ones that require a gradient, and those of odd classes."""
    batched: list[Tensor] = []
    asking: list[Tensor] = []
    foreign: list[Tensor] = []
    for x in (*args, *options.values()) if options else args:
        if type(x) in _PLAIN:
            continue
        if isinstance(x, Tensor):
            if _is_batched(x):
                batched.append(x)
            else:
                if x.requires_grad:
                    asking.append(x)
                if type(x) not in _TENSORS and has_own_operators(type(x)):
                    foreign.append(x)
        elif isinstance(x, SEQUENCES) and not _PLAIN.issuperset(map(type, x)):
            for all_of_them, inner in zip((batched, asking, foreign), _inspect(x, {}), strict=True):
                all_of_them += inner
    return batched, asking, foreign


_PLAIN = {type(None), bool, int, float, str, torch.dtype}  # kinds of most arguments that are not tensors
_TENSORS = {Tensor, torch.nn.Parameter}
_is_batched: Callable[[Tensor], bool] = torch._C._functorch.is_batchedtensor
