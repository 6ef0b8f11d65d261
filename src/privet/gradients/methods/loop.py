"""Per-example gradients one example at a time, by plain autograd: slow, and right for every model."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.overrides import _get_current_function_mode_stack
from torch.utils import _pytree as pytree

from privet._utils.randomness import seed_generators
from privet.errors import UnsupportedModelError
from privet.gradients.core.derivation import begin_graph, is_older, nodes_behind
from privet.gradients.core.examples import Examples
from privet.gradients.core.losses import checked_losses, uncompiled
from privet.gradients.core.per_example import DenseGrad
from privet.gradients.core.randomness import Draws
from privet.gradients.layers.random import Draw
from privet.gradients.methods.calls import GuardedCalls
from privet.gradients.methods.checkpointing import noticing_reentrant, running_again_by
from privet.gradients.methods.ghost import Subject
from privet.gradients.methods.tape import Tape


def differentiate(subject: Subject, examples: Examples, draws: Draws, seed: int, coefficient: float = 1.0) -> Tape:
    """Return the tape of a single example.

    Args:
        subject: what is differentiated.
        examples: exactly one.
        draws: its random numbers, as far as they were drawn before.
        seed: of what it draws beyond them, from the generators that everybody uses; inside of `preserve_generators`.
        coefficient: of the loss.

    Raises:
        Exception: whatever user code raises for this example.
    """
    seed_generators(seed)
    began = begin_graph()
    batch = pytree.tree_map(lambda leaf: leaf.clone() if isinstance(leaf, Tensor) else leaf, examples.one(0))
    calls = GuardedCalls(subject.guard, Draw(draws, None))

    def make_again() -> Callable[[Callable[[], Any]], Any]:
        mark = draws.mark()

        def again(part: Callable[[], Any]) -> None:
            # Most parts run again inside of the guarded backward pass; with reentrant checkpoints nearby, outside of it.
            guarded = contextlib.nullcontext() if calls in _get_current_function_mode_stack() else calls
            with draws.replayed_from(mark), subject.guard.fresh(), guarded:
                part()

        return again

    def notice() -> None:
        subject.has_reentrant_checkpoints = True

    # Before user code runs: it may switch parameters off.
    ends = [get_gradient_edge(parameter) for parameter in subject.parameters.values()]
    with torch.enable_grad(), uncompiled(), subject.guard.fresh(), running_again_by(make_again), noticing_reentrant(notice):
        # Hooks of the user's run in the backward pass, so it is guarded too; it starts from edges of the graph, as torch would
        # take a call with tensors away from the mode.
        with calls:
            loss = coefficient * checked_losses(subject.loss_fn(subject.model, batch), 1).sum()
            _refuse_graphs_of_before(loss, began)
            found = [] if subject.has_reentrant_checkpoints else plain_gradients(loss, ends)
        if subject.has_reentrant_checkpoints:
            found = gradients_by_filling(loss, subject)
    pairs = zip(subject.parameters, found, strict=True)
    return Tape(1, subject.parameters, {name: DenseGrad(value.detach()[None]) for name, value in pairs if value is not None})


def _refuse_graphs_of_before(total: Tensor, began: int) -> None:
    """Refuse a loss whose graph was begun before this example: the first backward pass frees that part for all who follow.

    Raises:
        UnsupportedModelError: whatever the example is.
    """
    if any(is_older(node, began) for node in nodes_behind([total.grad_fn])):
        raise UnsupportedModelError(
            "the model or loss uses a tensor that was computed from parameters before it was called; compute it in the forward "
            "pass, or detach() it"
        )


def plain_gradients(total: Tensor, ends: Sequence[GradientEdge]) -> list[Tensor | None]:
    """Return the gradients of a number, dense also where an embedding makes them sparse; None for unused parameters.

    No tensor's `.grad` changes.

    Args:
        total: the number.
        ends: where the graph ends in the parameters.
    """
    if not total.requires_grad:
        return [None] * len(ends)
    start = [get_gradient_edge(total)]
    return [_dense(found) for found in torch.autograd.grad(start, ends, [torch.ones_like(total)], allow_unused=True)]


def gradients_by_filling(total: Tensor, subject: Subject) -> list[Tensor | None]:
    """Return what `plain_gradients` does, for models with reentrant checkpoints.

    These allow for no other backward pass than one that fills `.grad`, which is put back afterwards.
    """
    if not total.requires_grad:
        return [None] * len(subject.parameters)
    with _gradients_put_aside(total, subject):
        total.backward()
        return [_dense(parameter.grad) for parameter in subject.parameters.values()]


def _dense(gradient: Tensor | None) -> Tensor | None:
    return gradient.to_dense() if gradient is not None and gradient.is_sparse else gradient


@contextlib.contextmanager
def _gradients_put_aside(total: Tensor, subject: Subject) -> Iterator[None]:
    """Let every tensor that a backward pass may reach have no gradient inside, and the one that it had outside."""
    reached = {id(p): p for p in (*subject.parameters.values(), *subject.guard.held_parameters())}
    reached |= {id(node.variable): node.variable for node in nodes_behind([total.grad_fn]) if hasattr(node, "variable")}
    before = [(tensor, tensor.grad) for tensor in reached.values()]
    for tensor, _ in before:
        tensor.grad = None
    try:
        yield
    finally:
        for tensor, gradient in before:
            tensor.grad = gradient
