"""Loss functions: checks of their result, its autograd graph and its gradients."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from privet.errors import InvalidArgumentError

LossFunction = Callable[[Any, Any], Tensor]


class Loss(nn.Module):
    """The loss as a module, so that the model's parameters can be swapped by name."""

    def __init__(self, model: nn.Module, loss_fn: LossFunction) -> None:
        super().__init__()
        self.model, self.loss_fn = model, loss_fn

    def forward(self, batch: Any) -> Tensor:
        """Return the losses."""
        return self.loss_fn(self.model, batch)


def check_loss_function(loss_fn: object) -> None:
    """Refuse a loss that cannot be called as loss_fn(model, batch), such as torch's criteria; say how to wrap it."""
    criterion = isinstance(loss_fn, nn.Module)
    name = type(loss_fn).__name__ if criterion else getattr(loss_fn, "__name__", type(loss_fn).__name__)
    called = loss_fn.forward if isinstance(loss_fn, nn.Module) else loss_fn
    problem = "" if callable(loss_fn) else "It cannot be called."
    if str(getattr(type(loss_fn) if criterion else loss_fn, "__module__", "")).startswith("torch.nn"):
        problem = "It takes outputs and labels."
    elif not problem:
        try:
            signature = inspect.signature(called)  # type: ignore[arg-type]
            try:
                signature.bind(None, None)
            except TypeError:
                problem = f"Its arguments are {signature}."
        except (TypeError, ValueError):  # a function without a signature, such as one written in C
            return
    if problem:
        raise InvalidArgumentError(
            "loss_fn", name, "a function of model and batch that returns one loss per example",
            f"{problem} Write one such as: lambda model, batch: F.cross_entropy(model(batch[0]), batch[1], reduction='none').",
        )  # fmt: skip


def check_losses(losses: object, examples: int) -> Tensor:
    """Return the losses, checked to be one per example, (B,)."""
    if not isinstance(losses, Tensor) or losses.shape != (examples,):
        found = f"a tensor of shape {tuple(losses.shape)}" if isinstance(losses, Tensor) else f"a {type(losses).__name__}"
        several = isinstance(losses, dict | tuple | list)
        raise InvalidArgumentError(
            "loss_fn(model, batch)", found, f"one loss per example, a tensor of shape (B,), here ({examples},)",
            "Return the sum of an example's losses." if several
            else "Use reduction='none', and average over an example's own positions only, not over examples.",
        )  # fmt: skip
    return losses


_run_backward: Any = getattr(torch.autograd.graph, "_engine_run_backward", None)


def backpropagate(losses: Tensor, inputs: Sequence[Any]) -> Sequence[Tensor | None]:
    """Return the gradients of the sum of the losses, (B,) or (B, 1), by the inputs; None for those that it does not use."""
    ones = torch.ones_like(losses)
    if _run_backward is None:
        return torch.autograd.grad(losses, inputs, ones, allow_unused=True)
    # The call that `torch.autograd.grad` makes, without its checks of shapes: 20 µs less.
    found: Sequence[Tensor | None] = _run_backward((losses,), (ones,), False, False, tuple(inputs), True, accumulate_grad=False)
    return found


def iter_nodes(nodes: Iterable[Any]) -> Iterator[Any]:
    """Yield nodes of an autograd graph and all nodes reachable from them, each once."""
    seen: set[Any] = set()
    stack = list(nodes)
    while stack:
        node = stack.pop()
        if node is not None and node not in seen:
            seen.add(node)
            yield node
            stack += [following for following, _ in node.next_functions]


def begin_graph() -> int:
    """Clear the autocast cache, whose casts are of an earlier graph; return a lower bound of later nodes' sequence numbers."""
    torch.clear_autocast_cache()
    return _read_sequence_number()


def create_node() -> int:
    """Return the sequence number of a node that is created for this purpose."""
    with torch.enable_grad():
        made: Any = _LEAF.clone()
    number: int = made.grad_fn._sequence_nr()
    return number


_LEAF = torch.zeros((), requires_grad=True, device="cpu")
# Reading the number takes 0.1 µs, creating a node 5 µs; not every version of torch can read it.
_read_sequence_number: Callable[[], int] = getattr(torch.autograd, "_get_sequence_nr", create_node)


def is_older(node: Any, number: int) -> bool:
    """Return whether a node was created before `begin_graph` returned this number; leaves of a graph never count as older."""
    older: bool = not hasattr(node, "variable") and node._sequence_nr() < number
    return older
