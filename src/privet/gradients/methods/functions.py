"""Autograd functions of users between activations, such as gradient reversal or a straight-through estimator.

torch batches only those that are written for it, and calls a batching rule of the user's with all examples. Here the forward and
the backward pass of a function run as the rest of the program does: inside vmap, for what looks like one example.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils import _pytree as pytree

from privet.gradients.core.batching import is_batched, is_differentiable, vectorise
from privet.gradients.core.recorder import Recorder, UntraceableError

# Enters user code in a vmap that was entered again, with this token; its state is restored afterwards.
Isolate = Callable[[Tensor], AbstractContextManager[None]]
_PLAIN_SETUP: Any = torch.autograd.Function.setup_context


class _Context:
    """What an autograd function of the user's gets as `ctx`: also its attributes may hold tensors of an example."""

    def __init__(self, needs_input_grad: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs_input_grad
        self.saved_tensors: tuple[Any, ...] = ()
        self._constant: tuple[Tensor, ...] = ()
        self._materialize = True

    def save_for_backward(self, *tensors: Any) -> None:
        self.saved_tensors = tensors

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        self._constant = tensors

    def set_materialize_grads(self, value: bool) -> None:
        self._materialize = value

    def mark_dirty(self, *tensors: Tensor) -> None:
        raise UntraceableError("an autograd function writes to its input")


def call_function(isolate: Isolate, recorder: Recorder, function: Any, arguments: Sequence[Any]) -> Any:
    """Call an autograd function of the user's with the tensors of one example; return what it returns.

    Raises:
        UntraceableError: a parameter is among its arguments, for which each example would need a copy.
    """
    asked = tuple(isinstance(x, Tensor) and is_differentiable(x) for x in arguments)
    if any(needed and not is_batched(x) and recorder.follow(x) for needed, x in zip(asked, arguments, strict=True)):
        raise UntraceableError(f"a parameter goes through the autograd function {function.__name__}")
    context = _Context(asked)
    with torch.no_grad():
        if function.setup_context is _PLAIN_SETUP:
            found = function.forward(context, *arguments)
        else:
            found = function.forward(*arguments)
            function.setup_context(context, arguments, found)
    outputs = list(found) if isinstance(found, tuple) else [found]
    wanted = [needed and is_batched(x) for needed, x in zip(asked, arguments, strict=True)]
    tracked = [place for place, x in enumerate(outputs) if is_batched(x)]
    if not any(wanted) or not tracked:
        return found
    leaves, tree = pytree.tree_flatten(vars(context))
    held = [place for place, x in enumerate(leaves) if is_batched(x)]
    constant = set(map(id, context._constant))
    # Tensors of an example end with the pass, so the call keeps none.
    kept = [None if place in held else x for place, x in enumerate(leaves)]
    call = _Call(isolate, recorder, function, wanted, kept, tree, held, [place in tracked for place in range(len(outputs))])
    fixed = [id(outputs[place]) in constant for place in tracked]
    materialize = context._materialize

    def below(*physical: Tensor) -> Any:
        after = sum(wanted) + len(tracked)
        inputs, made, saved = physical[: sum(wanted)], physical[sum(wanted) : after], physical[after:]
        with torch._C.DisableTorchFunction():
            return recorder.apply(_Attached, call, made, saved, fixed, materialize, *inputs)

    inputs = [x for is_wanted, x in zip(wanted, arguments, strict=True) if is_wanted]
    seen = recorder.run_on_physical_batch(below, *inputs, *(outputs[place] for place in tracked), *(leaves[i] for i in held))
    for place, x in zip(tracked, seen, strict=True):
        outputs[place] = x
    return tuple(outputs) if isinstance(found, tuple) else outputs[0]


@dataclass(frozen=True, eq=False)
class _Call:
    isolate: Isolate
    recorder: Recorder
    function: Any
    wanted: Sequence[bool]  # for each argument, whether it gets a gradient
    kept: Sequence[Any]  # leaves of the context, None for tensors of an example
    tree: pytree.TreeSpec  # of the context
    held: Sequence[int]  # places of tensors of an example among the leaves
    tracked: Sequence[bool]  # for each output, whether gradients come to it

    def pull_back(self, saved: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> list[Tensor | None]:
        """Return the gradients of the inputs, by the physical tensors that the context held and the gradients of the outputs."""
        recorder, found = self.recorder, list[Tensor | None]()

        def one(token: Tensor, *rows: Tensor) -> Tensor:
            recorder.token = token
            leaves = list(self.kept)
            for place, row in zip(self.held, rows, strict=False):
                leaves[place] = row
            context, arrived = _Context(()), iter(rows[len(self.held) :])
            vars(context).update(pytree.tree_unflatten(leaves, self.tree))
            given = iter(gradients)
            came = [next(given) is not None if tracked else False for tracked in self.tracked]
            with self.isolate(token):
                made = self.function.backward(context, *(next(arrived) if here else None for here in came))
            made = made if isinstance(made, tuple) else (made,)
            for wanted, gradient in zip(self.wanted, made, strict=False):
                if wanted:
                    found.append(None if gradient is None else _take_physical(recorder, gradient))
            return token

        rows = [*saved, *(x for x in gradients if x is not None)]
        vectorise(one, torch.zeros(recorder.examples, device=recorder.anchor.device), rows, [True] * len(rows))
        return found


def _take_physical(recorder: Recorder, x: Tensor) -> Tensor:
    if not is_batched(x):
        return x.expand(recorder.examples, *x.shape)
    seen: list[Tensor] = []

    def look(physical: Tensor) -> Tensor:
        seen.append(physical)
        return physical

    recorder.run_on_physical_batch(look, x)
    return seen[0]


class _Attached(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, anchor: Tensor, call: _Call, outputs: Sequence[Tensor], held: Sequence[Tensor],
        fixed: Sequence[bool], materialize: bool, *inputs: Tensor,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        made = tuple(x.clone() for x in outputs)  # an output may be an input, or a view of it
        ctx.call = call
        ctx.save_for_backward(*held)
        ctx.set_materialize_grads(materialize)
        ctx.mark_non_differentiable(*(x for x, constant in zip(made, fixed, strict=True) if constant))
        return made

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        return None, None, None, None, None, None, *ctx.call.pull_back(ctx.saved_tensors, gradients)
