"""Per-example gradients one example at a time, by plain autograd: slow, and correct for every model."""

from __future__ import annotations

import contextlib
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.overrides import _get_current_function_mode_stack
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import CheckpointFunction

from privet._utils.randomness import seed_generators
from privet._utils.tensors import gradient_dtype
from privet.errors import UnsupportedModelError
from privet.gradients.core.examples import Examples
from privet.gradients.core.losses import begin_graph, check_losses, is_older, iter_nodes
from privet.gradients.core.patches import force_eager, patch_recomputation
from privet.gradients.core.per_example import DenseGrad
from privet.gradients.core.randomness import Draw, Draws
from privet.gradients.methods.calls import GuardedCalls
from privet.gradients.methods.ghost import Program
from privet.gradients.methods.tape import Tape


def differentiate(program: Program, examples: Examples, draws: Draws, seed: int) -> Tape:
    """Return the tape of a single example; call inside `preserve_generators`: user code may draw from the global generators."""
    seed_generators(seed)
    began = begin_graph()
    batch = pytree.tree_map(lambda leaf: leaf.clone() if isinstance(leaf, Tensor) else leaf, examples.get(0))
    calls = GuardedCalls(program.guard, Draw(draws, None))

    def make_rerun() -> Callable[[Callable[[], Any]], Any]:
        mark = draws.mark()

        def again(part: Callable[[], Any]) -> None:
            # Most parts are recomputed inside the guarded backward pass; next to reentrant checkpoints, outside it.
            guarded = contextlib.nullcontext() if calls in _get_current_function_mode_stack() else calls
            with draws.replay_from(mark), program.guard.isolate(), guarded:
                part()

        return again

    # Before user code runs: it may set requires_grad to False.
    ends = [get_gradient_edge(parameter) for parameter in program.parameters.values()]
    isolated = program.guard.isolate(held=examples.shared)
    with torch.enable_grad(), force_eager(), isolated, patch_recomputation(make_rerun):
        # User hooks run in the backward pass, so it is guarded too. It starts from graph edges, because torch disables the mode
        # during calls with tensors.
        with calls:
            loss = check_losses(program.loss_fn(program.model, batch), 1).sum()
            _read_graph(program, loss, began)
            found = [] if program.has_reentrant_checkpoints else plain_gradients(loss, ends)
        if program.has_reentrant_checkpoints:
            found = backward_gradients(loss, program)
    pairs = zip(program.parameters.items(), found, strict=True)
    # An example's own gradient may be of low precision, but sums of several may not: rounding could exceed the bound.
    grads = {name: value.detach()[None].to(gradient_dtype(p)) for (name, p), value in pairs if value is not None}
    return Tape(1, program.parameters, {name: DenseGrad(grad) for name, grad in grads.items()})


def _read_graph(program: Program, total: Tensor, began: int) -> None:
    """Note reentrant checkpoints in the graph of a loss, which hide their parameters, and leaves that are no parameters.

    Refuse nodes from before this example, which its backward pass would free for later examples; no example decides on that.
    """
    nodes = list(iter_nodes([total.grad_fn]))
    if any(is_older(node, began) for node in nodes):
        raise UnsupportedModelError(
            "the model or loss uses a tensor that was computed from parameters before it was called; compute it in the forward "
            "pass, or detach() it"
        )
    if any(getattr(type(node), "_forward_cls", None) is CheckpointFunction for node in nodes):
        program.has_reentrant_checkpoints = True
    own = set(map(id, program.parameters.values()))
    leaves = (node.variable for node in nodes if hasattr(node, "variable"))
    program.reached = [weakref.ref(x) for x in leaves if id(x) not in own]


def plain_gradients(total: Tensor, ends: Sequence[GradientEdge]) -> list[Tensor | None]:
    """Return a scalar's gradients at graph edges of parameters, dense, None for unused ones; no tensor's `.grad` changes."""
    if not total.requires_grad:
        return [None] * len(ends)
    start = [get_gradient_edge(total)]
    return [_to_dense(found) for found in torch.autograd.grad(start, ends, [torch.ones_like(total)], allow_unused=True)]


def backward_gradients(total: Tensor, program: Program) -> list[Tensor | None]:
    """Compute `plain_gradients` for models with reentrant checkpoints, which only fill `.grad`; it is restored afterwards."""
    if not total.requires_grad:
        return [None] * len(program.parameters)
    with _set_aside_gradients(total, program):
        total.backward()
        own = set(map(id, program.parameters.values()))
        hidden = (p for p in program.guard.iter_parameters() if p.grad is not None and id(p) not in own)
        program.reached += map(weakref.ref, hidden)  # inside checkpoints, whose graph was not read
        return [_to_dense(parameter.grad) for parameter in program.parameters.values()]


def _to_dense(gradient: Tensor | None) -> Tensor | None:
    return gradient.to_dense() if gradient is not None and gradient.is_sparse else gradient


@contextlib.contextmanager
def _set_aside_gradients(total: Tensor, program: Program) -> Iterator[None]:
    """Return a context in which all tensors that a backward pass may reach have no `.grad`, and no hook that waits for it."""
    reached = {id(p): p for p in (*program.parameters.values(), *program.guard.iter_parameters())}
    reached |= {id(node.variable): node.variable for node in iter_nodes([total.grad_fn]) if hasattr(node, "variable")}
    before = [(tensor, tensor.grad, tensor._post_accumulate_grad_hooks) for tensor in reached.values()]
    for tensor, _, hooks in before:
        tensor.grad = None
        if hooks:
            tensor._post_accumulate_grad_hooks = OrderedDict()  # None would leave them as they are
    try:
        yield
    finally:
        for tensor, gradient, hooks in before:
            tensor.grad = gradient
            if hooks:
                tensor._post_accumulate_grad_hooks = hooks
