"""How a tensor that a model computes from its parameters alone comes from one of them, and what the graph between them is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Span = tuple[int, int]


@dataclass(frozen=True, eq=False)
class Derivation:
    """How one tensor comes from one parameter.

    Args:
        tensor: D, with its graph.
        parameter: p.
    """

    tensor: Tensor
    parameter: Tensor

    @property
    def span(self) -> Span | None:
        """The stretch of p's memory that D lies in, if D shows every entry at most once; else None."""
        if self.tensor.untyped_storage().data_ptr() != self.parameter.untyped_storage().data_ptr():
            return None
        reach = 1
        for step, size in sorted(zip(self.tensor.stride(), self.tensor.shape, strict=True)):
            if size > 1:
                if step < reach:
                    return None
                reach += step * (size - 1)
        start = int(self.tensor.storage_offset())
        return start, start + int(reach)

    @property
    def transposes(self) -> bool:
        """Whether D is p with its two dimensions swapped."""
        p = self.parameter
        swapped = self.span is not None and p.dim() == 2 and self.tensor.shape == p.shape[::-1]
        return swapped and self.tensor.stride() == p.stride()[::-1] and self.tensor.storage_offset() == p.storage_offset()

    def back(self, gradient: Tensor, *, batched: bool = False) -> Tensor:
        """Return the gradient of p for a gradient of D, or for each of several."""
        (found,) = torch.autograd.grad(
            self.tensor, self.parameter, gradient.to(self.tensor.dtype), retain_graph=True, is_grads_batched=batched
        )
        return found


def nodes_behind(nodes: Iterable[Any]) -> Iterator[Any]:
    """Yield nodes of an autograd graph and all that they lead to, each once."""
    seen: set[Any] = set()
    stack = list(nodes)
    while stack:
        node = stack.pop()
        if node is not None and node not in seen:
            seen.add(node)
            yield node
            stack += [following for following, _ in node.next_functions]


def begin_graph() -> int:
    """Return a number that no node of a graph is below which this thread makes from now on.

    Casts that an autocast around all passes keeps would be nodes of an earlier graph: they are made anew.
    """
    torch.clear_autocast_cache()
    with torch.enable_grad():
        made: Any = torch.zeros((), requires_grad=True).clone()
    number: int = made.grad_fn._sequence_nr()
    return number


def is_older(node: Any, number: int) -> bool:
    """Return whether a node was made before `begin_graph` returned this number; the ends of a graph have no age."""
    older: bool = not hasattr(node, "variable") and node._sequence_nr() < number
    return older
