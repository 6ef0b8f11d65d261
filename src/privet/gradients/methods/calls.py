"""Interception of the torch calls of user code during a pass: forbidden writes, random numbers, and dispatch to rules."""

from __future__ import annotations

__all__ = ["ExampleCalls", "GuardedCalls", "WriteError"]

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from privet.errors import UnsupportedModelError
from privet.gradients.core.batching import SEQUENCES, check_not_nested, is_batched, is_differentiable
from privet.gradients.core.consensus import SplitError, agree_on
from privet.gradients.core.handlers import HANDLERS, OPERATORS, has_operators
from privet.gradients.core.randomness import Draws
from privet.gradients.core.recorder import Recorder, UntraceableError
from privet.gradients.core.state.guard import Guard
from privet.gradients.layers.indexing import INDEXED, resolve_index
from privet.gradients.layers.random import RULES, Draw
from privet.gradients.methods.called_back import differentiate_inside, dispatches_to_user, is_called_back, watch
from privet.gradients.methods.writes import find_written, is_write, may_write, pick_arguments

_ACCESS = {"__get__", "__set__", "__delete__"}
_BACKWARD = {Tensor.backward, torch.autograd.backward}
_FACTORIES = {
    *(f"{name}{kind}" for name in ("zeros", "ones", "empty", "full") for kind in ("", "_like")),
    *(f"new_{name}" for name in ("zeros", "ones", "empty", "full", "tensor")),
    "arange", "tensor", "eye", "clone", "linspace", "as_tensor",
}  # fmt: skip


class WriteError(UnsupportedModelError):
    """User code writes to something that outlives the pass."""


@functools.lru_cache(maxsize=4096)
def _is_watched(func: Any, name: str) -> bool:
    """Return whether a function may be refused, or can write to an argument besides `out` and the target of `inplace`."""
    return func in _BACKWARD or func in _RENORMALISING or name in _HOOKS or name in _ALIASING or may_write(func, name)


class GuardedCalls(TorchFunctionMode):
    """Intercepts torch calls in every pass, over a whole batch or a single example.

    Refuses writes to parameters and calls of backward(), and takes random numbers from the pass.

    Args:
        guard: of the model.
        draw: random numbers of the current example; None where the global generators are seeded for it.
    """

    def __init__(self, guard: Guard, draw: Draw | None) -> None:
        super().__init__()
        self._guard, self._draw = guard, draw

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options = kwargs or {}
        name = getattr(func, "__name__", "")
        if name in _ACCESS:
            return self._access_attribute(func, name, args)
        written: Sequence[Tensor] = ()
        if _is_watched(func, name) or "out" in options or "inplace" in options:
            written = find_written(func, name, args, options)
            self._check_call(func, name, args, options, written)
            if name in _ALIASING and not is_batched(args[0]) and self._guard.is_protected(args[0]):
                return func(args[0].detach().clone(), *args[1:], **options)
        rule = None if self._draw is None else RULES.get(func)
        if rule is not None:
            found = rule(self._draw, *self.prepare_arguments(args), **self.prepare_arguments(options))
            if found is not NotImplemented:
                return found
        if torch.Generator in map(type, (*args, *options.values())):
            # A generator of the user's own would be shared by the examples; the global ones are seeded for each.
            args = tuple(None if type(x) is torch.Generator else x for x in args)
            options = {key: None if type(x) is torch.Generator else x for key, x in options.items()}
        if name not in _HOOKS and any(map(is_called_back, (*args, *options.values()))):
            args, options = pytree.tree_map(lambda x: watch(self, x) if is_called_back(x) else x, (tuple(args), dict(options)))
        dispatching = next(filter(dispatches_to_user, types), None)
        if dispatching is not None:
            return self.call_class(dispatching, func, types, args, options, written)
        return self.call(func, name, args, options, written)

    def call_class(self, kind: Any, func: Any, types: Any, args: Any, options: Any, written: Sequence[Tensor]) -> Any:
        """Call a permitted function through the user-defined class of one of its tensors, whose own calls are intercepted."""
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
        if name in _HOOKS and not is_batched(args[0]) and self._guard.is_protected(args[0]):
            raise UnsupportedModelError(
                "the model or loss puts a hook on a parameter while it runs, where it would remain; register hooks before "
                "training"
            )

    def prepare_arguments(self, arguments: Any) -> Any:
        """Return the arguments of a function that draws random numbers."""
        return arguments

    def call(self, func: Any, name: str, args: Any, options: Any, written: Sequence[Tensor]) -> Any:
        """Call a permitted function, which writes to the tensors `written`."""
        if func is torch.autograd.grad:
            return differentiate_inside(self, *args, **options)
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
        if name == "__set__" and func == _DATA_SET and not is_batched(args[0]) and self._guard.is_protected(args[0]):
            if not _is_same(args[0], args[1]):
                raise WriteError(_WRITTEN)
            return None
        return func(*args)


def _is_same(tensor: Tensor, data: object) -> bool:
    """Return whether this data is the tensor's own, so that assigning it to `.data` changes nothing."""
    return (
        isinstance(data, Tensor)
        and not is_batched(data)
        and (data.data_ptr(), data.shape, data.stride(), data.dtype, data.device)
        == (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype, tensor.device)
    )


# Functions that expose a tensor's memory: for a parameter, that of a copy.
_ALIASING = {"numpy", "__array__", "__dlpack__", "untyped_storage", "storage", "_typed_storage"}
_HOOKS = {"register_hook", "register_post_accumulate_grad_hook"}
# Functions that would show the physical tensor behind one example's.
_EXPOSING = {
    "untyped_storage",
    "storage",
    "_typed_storage",
    "data_ptr",
    "__reduce_ex__",
    "__repr__",
    "__format__",
    "__deepcopy__",
}
_RENORMALISING = {F.embedding, F.embedding_bag}
_RULED = {F.batch_norm, F.instance_norm}  # their rules leave the running statistics as they are
_TENSOR: Any = Tensor
_DATA_GET = _TENSOR.data.__get__
_DATA_SET, _GRAD_SET = _TENSOR.data.__set__, _TENSOR.grad.__set__
_GRAD_FN_GET, _LEAF_GET, _ASKED_GET = _TENSOR.grad_fn.__get__, _TENSOR.is_leaf.__get__, _TENSOR.requires_grad.__get__
_WRITTEN = (
    "the model or loss writes to a parameter, or to a large tensor that it holds, while it runs on an example: the result would "
    "be released without noise; write to nothing that outlives the forward pass (an embedding's max_norm and restarted "
    "codebooks do), or keep it in a buffer"
)


class ExampleCalls(GuardedCalls):
    """Intercepts torch calls in a pass over a physical batch, where user code sees one example inside vmap.

    Args:
        guard: of the model.
        recorder: of the pass.
        draws: of the pass.
        batched_from_the_start: whether new tensors are created per example, as the model may write into them.
    """

    def __init__(self, guard: Guard, recorder: Recorder, draws: Draws, *, batched_from_the_start: bool) -> None:
        super().__init__(guard, Draw(draws, recorder.token))
        self._recorder, self._fresh = recorder, batched_from_the_start
        self._failure: BaseException | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        try:
            return super().__torch_function__(func, types, args, kwargs)
        except BaseException as error:
            if self._failure is None and self._concerns_several(error, args, kwargs):
                self._failure = error
            raise

    def _concerns_several(self, error: BaseException, args: Any, kwargs: Any) -> bool:
        """Return whether a call may have failed because of one example of several, or because Privet gives the pass up."""
        if isinstance(error, SplitError | UntraceableError):
            return True
        leaves = pytree.tree_leaves((args, kwargs))
        return self._recorder.examples > 1 and any(is_batched(x) or is_called_back(x) for x in leaves)

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

    @contextlib.contextmanager
    def for_token(self, token: Tensor) -> Iterator[None]:
        """Return a context that intercepts calls inside a vmap that was entered again."""
        before, self._draw = self._draw, Draw(self._recorder.draws, token)
        try:
            with self:
                yield
        finally:
            self._draw = before

    def call_class(self, kind: Any, func: Any, types: Any, args: Any, options: Any, written: Sequence[Tensor]) -> Any:
        """Call a function by its rule; a user-defined class would compute on several examples unseen."""
        if func not in HANDLERS:
            raise UntraceableError("a function is called through a user-defined class of tensors")
        return self.call(func, getattr(func, "__name__", ""), args, options, written)

    def prepare_arguments(self, arguments: Any) -> Any:
        """Return the arguments of a function that draws random numbers, with per-example copies of parameters."""
        return pytree.tree_map(lambda x: self._copy_parameter(x) if _requires_grad(x) else x, arguments)

    def call(self, func: Any, name: str, args: Any, options: Any, written: Sequence[Tensor]) -> Any:
        """Call a function: by its rule, or by vmap's batching rule with per-example copies of parameters."""
        recorder = self._recorder
        if name in _EXPOSING and args and is_batched(args[0]):
            if name == "__deepcopy__":
                return args[0].clone()
            if name == "__format__" and not args[0].dim():
                return self.call(Tensor.item, "item", args[:1], {}, ()).__format__(*args[1:])
            raise UntraceableError("the text or the memory of a tensor is read, which holds all examples")
        if name in _HOOKS:
            raise UntraceableError("a hook on a tensor would receive the gradients of all examples, or their sum")
        if func in INDEXED and len(args) > 1:
            indices = resolve_index(recorder, args[1])
            if indices is not None:
                args = (args[0], indices, *args[2:])
        batched, asking = _inspect(args, options)
        if batched and (func in _UNRELIABLE or (func in _FILLS and is_batched(pick_arguments(_FILLED, args, options)[0]))):
            raise UntraceableError("a function is called that torch computes otherwise for several examples than for one")
        if written and func not in _RULED and any(not is_batched(x) and (batched or recorder.has_used(x)) for x in written):
            raise UntraceableError("values of an example are written into a tensor that all examples share")
        followed = []
        if asking and torch.is_grad_enabled():
            assert recorder.token is not None
            check_not_nested(recorder.token)
            followed = [x for x in asking if recorder.follow(x)]
        handler = HANDLERS.get(func)
        if handler is not None and ((handler.always and (batched or followed)) or (batched and followed)):
            if handler.direct:
                found = handler.rule(recorder, *args, **options) if not followed else None
            else:
                found = recorder.call(handler.rule, args, options, batched)
            if found is not None:
                return found
        if not batched:
            if asking and _is_foreign(func):
                raise UntraceableError("parameters go through user code whose backward pass would receive the sum of gradients")
            return self._call_shared(func, name, args, options)
        if followed:
            args, options = self.prepare_arguments(args), self.prepare_arguments(options)
            if handler is not None and handler.always:
                found = (
                    handler.rule(recorder, *args, **options)
                    if handler.direct
                    else recorder.call(handler.rule, args, options, _inspect(args, options)[0])
                )
                if found is not None:
                    return found
        elif asking and torch.is_grad_enabled():
            args, options = pytree.tree_map(lambda x: x.detach() if _requires_grad(x) else x, (args, options))
        if _is_foreign(func):
            rule = OPERATORS.get(str(getattr(func, "_qualified_op_name", None) or getattr(func, "_name", "")))
            found = None if rule is None or followed else recorder.call(rule, args, options, batched)
            if found is None:
                raise UntraceableError("a custom operator is called, whose batching rule is unknown")
            return found
        try:
            return func(*args, **options)
        except RuntimeError as error:
            if is_write(name) or "randomness" in str(error):
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
        """Call a function of shared tensors only."""
        found = func(*args, **options)
        if not self._fresh or name not in _FACTORIES or not isinstance(found, Tensor) or found.requires_grad:
            return found
        recorder = self._recorder
        assert recorder.token is not None
        return recorder.run_on_physical_batch(lambda token: found.expand(len(token), *found.shape).clone(), recorder.token)

    def _copy_parameter(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled() and self._recorder.follow(x):
            return self._recorder.per_example_copy(x)
        return x.detach()

    def _one_by_one(self, func: Any, args: Any, options: Any) -> Any:
        """Call a function that vmap cannot batch for each example's physical tensor in turn."""
        leaves, tree = pytree.tree_flatten((tuple(args), dict(options)))
        if any(map(is_called_back, leaves)):
            raise UntraceableError("a function of the user's would be called for one example after another, unseparated")
        where = [number for number, leaf in enumerate(leaves) if is_batched(leaf)]
        trees: list[Any] = []

        def below(*physical: Tensor) -> Any:
            results, state = [], torch.get_rng_state()
            for position in range(self._recorder.examples):
                for number, tensor in zip(where, physical, strict=True):
                    leaves[number] = tensor[position]
                arguments, named = pytree.tree_unflatten(leaves, tree)
                results.append(pytree.tree_flatten(func(*arguments, **named)))
            if not torch.equal(state, torch.get_rng_state()):
                raise UntraceableError("random numbers are drawn from a generator that examples would share")
            trees.append(agree_on([_describe(found, spec) for found, spec in results]) and results[0])
            columns = zip(*(found for found, _ in results), strict=True)
            stacked = tuple(torch.stack(column) for column in columns if isinstance(column[0], Tensor))
            return stacked or (physical[0],)

        made = iter(self._recorder.run_on_physical_batch(below, *(leaves[number] for number in where)))
        first, spec = trees[0]
        return pytree.tree_unflatten([next(made) if isinstance(leaf, Tensor) else leaf for leaf in first], spec)


def _describe(leaves: list[Any], spec: Any) -> Any:
    return str(spec), tuple((x.shape, x.dtype) if isinstance(x, Tensor) else x for x in leaves)


def _requires_grad(x: object) -> bool:
    return isinstance(x, Tensor) and x.requires_grad


def _inspect(args: Any, options: Any) -> tuple[list[Tensor], list[Tensor]]:
    """Return the batched tensors among the arguments, and the unbatched ones that require a gradient."""
    batched, asking = [], []
    for x in (*args, *options.values()) if options else args:
        if type(x) in _PLAIN:
            continue
        if isinstance(x, Tensor):
            if _is_batched(x):
                batched.append(x)
            elif x.requires_grad:
                asking.append(x)
        elif isinstance(x, SEQUENCES):
            inner, more = _inspect(x, {})
            batched += inner
            asking += more
    return batched, asking


_PLAIN = {type(None), bool, int, float, str, torch.dtype}  # kinds of most arguments that are not tensors
_is_batched: Callable[[Tensor], bool] = torch._C._functorch.is_batchedtensor
# Functions whose batching rule, or the rule of their gradient, is wrong in some version of torch, and what differentiates anew.
_UNRELIABLE: set[Any] = {
    torch.autograd.grad, torch.select_scatter, Tensor.select_scatter, Tensor.as_strided_,
    getattr(F, "linear_cross_entropy", None),
} - {None}  # fmt: skip
_FILLS, _FILLED = {torch.index_fill, Tensor.index_fill, Tensor.index_fill_}, ((3, "value"),)  # likewise, for a value per example
_KNOWN_LIBRARIES = {"aten", "prims", "torchvision", "torchaudio", "privet"}


def _is_foreign(func: Any) -> bool:
    """Return whether a function is a custom operator of another library, whose batching rules are not torch's."""
    library = getattr(func, "namespace", None) or getattr(func, "_qualified_op_name", "").partition("::")[0] or None
    return isinstance(library, str) and library not in _KNOWN_LIBRARIES
