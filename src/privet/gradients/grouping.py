"""Several rows of a batch clipped as one: the examples of a user, the members of a group, the views of an example.

The tape follows every row as if it were an example, in whatever way is fastest for the layer. A loss over rows that is a sum
has the sum of their gradients, so what was recorded of the rows becomes what is known of the units without another pass.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from privet.gradients.convolution import KernelUse
from privet.gradients.derived import DerivedUse
from privet.gradients.embedding import EmbeddingUse
from privet.gradients.linear import LinearUse, cheapest
from privet.gradients.recorder import UntraceableError
from privet.gradients.several import DisjointUses, LinearUses, SeveralUses, TiedUses, together
from privet.gradients.tape import Tape
from privet.gradients.trees import examples_in
from privet.gradients.uses import DirectUse, Use, WrappedUse

# Whether a tape follows what runs now.
_FOLLOWED: ContextVar[bool] = ContextVar("followed", default=False)


@contextlib.contextmanager
def followed() -> Iterator[None]:
    """Let losses over rows know that a tape follows them."""
    token = _FOLLOWED.set(True)
    try:
        yield
    finally:
        _FOLLOWED.reset(token)


class RowLoss(ABC):
    """A loss per unit that is the sum of the losses of the unit's rows: (model, batch of B units) → (B,)."""

    @abstractmethod
    def rows(self, batch: Any) -> Any:
        """Return the batch with an entry per row, (B·k, …): k of them for each unit, side by side."""

    @abstractmethod
    def row_losses(self, model: Any, rows: Any) -> Tensor:
        """Return each row's part of its unit's loss, (B·k,). A row's must depend on that row only."""

    def __call__(self, model: Any, batch: Any) -> Tensor:
        """Return the losses of the units, (B,).

        Raises:
            UntraceableError: a tape follows this call within another function. It cannot know that rows are joined, and another
                dimension that is as long as the batch by chance would be taken for the units.
        """
        if _FOLLOWED.get():
            raise UntraceableError("a loss over rows is called by another function, which hides its rows")
        units = examples_in(batch)
        losses = self.row_losses(model, self.rows(batch))
        return losses.view(units, len(losses) // max(1, units)).sum(1)


class ScaledRows(RowLoss):
    """A loss over rows times a coefficient: still one over rows, which a plain product would hide from the tape.

    Args:
        inner: the loss.
        coefficient: public number.
    """

    def __init__(self, inner: RowLoss, coefficient: float) -> None:
        self.inner, self.coefficient = inner, coefficient

    def rows(self, batch: Any) -> Any:
        """Return the rows of the inner loss."""
        return self.inner.rows(batch)

    def row_losses(self, model: Any, rows: Any) -> Tensor:
        """Return the inner losses times the coefficient."""
        return self.coefficient * self.inner.row_losses(model, rows)


@dataclass(frozen=True, eq=False)
class GroupedUse(WrappedUse):
    """A use by rows, of which every `size` are one unit.

    Args:
        inner: the use by B·size rows.
        size: rows of a unit.
    """

    size: int

    @property
    def examples(self) -> int:
        """B."""
        return self.inner.examples // self.size

    @property
    def cost(self) -> int:
        """Numbers that the gradients of one unit's rows take."""
        return self.size * self.inner.cost

    @property
    def terms(self) -> int:
        """Those of all rows of a unit."""
        return self.size * self.inner.terms

    def per_example(self) -> Tensor:
        """Return the gradients, (B, *shape of the parameter)."""
        return _summed(self.inner.per_example(), self.size)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return Σᵢ wᵢ·gᵢ, each row having the weight of its unit."""
        return self.inner.weighted_sum(weights.repeat_interleave(self.size))

    def rows(self, index: Tensor | slice) -> GroupedUse:
        """Return the same use by some of the units."""
        if isinstance(index, slice):
            start, stop, _ = index.indices(self.examples)
            return GroupedUse(self.inner.rows(slice(self.size * start, self.size * stop)), self.size)
        own = self.size * index[:, None] + torch.arange(self.size, device=index.device)
        return GroupedUse(self.inner.rows(own.flatten()), self.size)

    def double(self) -> GroupedUse:
        """Return the same use in float64."""
        return GroupedUse(self.inner.double(), self.size)

    def reach(self) -> Tensor:
        """Return the sum over the rows."""
        return _summed(self.inner.reach(), self.size)


def _summed(rows: Tensor, size: int) -> Tensor:
    """Return the sums over the rows of each unit, (B·size, …) → (B, …)."""
    return rows.reshape(-1, size, *rows.shape[1:]).sum(1)


def _side_by_side(rows: Tensor, size: int) -> Tensor:
    """Return the positions of a unit's rows as positions of the unit, (B·size, T, …) → (B, size·T, …)."""
    return rows.reshape(-1, size * rows.shape[1], *rows.shape[2:])


def _linear(use: LinearUse, size: int) -> Use:
    return cheapest(_side_by_side(use.inputs, size), _side_by_side(use.gradients, size))


def _embedding(use: EmbeddingUse, size: int) -> Use:
    return replace(use, indices=_side_by_side(use.indices, size), gradients=_side_by_side(use.gradients, size))


def _several(use: SeveralUses, size: int) -> Use:
    return together([grouped(each, size) for each in use.uses])


# Kinds of uses by rows that are uses of the same kind by units; any other is a `GroupedUse`.
_KINDS: dict[type[Use], Callable[[Any, int], Use]] = {
    DirectUse: lambda use, size: DirectUse(_summed(use.gradients, size)),
    KernelUse: lambda use, size: KernelUse(_summed(use.gradients, size)),
    LinearUse: _linear,
    EmbeddingUse: _embedding,
    DerivedUse: lambda use, size: replace(use, inner=grouped(use.inner, size)),
    **dict.fromkeys((SeveralUses, LinearUses, TiedUses, DisjointUses), _several),
}


def grouped(use: Use, size: int) -> Use:
    """Return what a use by rows is for units of `size` rows each."""
    kind = _KINDS.get(type(use), GroupedUse)
    return use if size == 1 else kind(use, size)


def by_unit(tape: Tape, units: int) -> Tape:
    """Return the tape of B units from that of their B·k rows."""
    size = tape.examples // max(1, units)
    return Tape(units, tape.parameters, {name: grouped(use, size) for name, use in tape.uses.items()})
