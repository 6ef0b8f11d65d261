"""Control flow that depends on data: a batch goes on together as far as its examples agree, and in groups where they do not.

A Python value that steers a model (`.item()`, `if x.sum() > 0`, the number of True in a mask) is taken from the physical batch.
If it is the same for all examples, it is what each one alone would see. Else `SplitError` names groups of examples that agree,
and the pass begins again for each group. So no example is steered by another: at worst every example is a group of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from privet.gradients.core.batching import on_physical_batch


class SplitError(Exception):
    """Examples of a pass differ in something that steers it.

    Args:
        groups: positions of the examples that agree, each in rising order.
    """

    def __init__(self, groups: Sequence[Tensor]) -> None:
        super().__init__()
        self.groups = groups


def agree(token: Tensor, x: Tensor) -> Tensor:
    """Return what each example alone would see of a tensor, if that is the same for all, bit by bit.

    Args:
        token: of the pass.
        x: batched.

    Raises:
        SplitError: it is not.
    """
    seen: list[Tensor] = []

    def look(physical: Tensor) -> Tensor:
        seen.append(physical.detach())
        return physical

    on_physical_batch(token, look, (x,))
    values = seen[0]
    if len(values) > 1:
        bits = _bits(values)
        if not bool((bits == bits[:1]).all()):
            raise SplitError(_groups(torch.unique(bits, dim=0, return_inverse=True)[1]))
    return values[0]


def agree_on(values: Sequence[Any]) -> Any:
    """Return a value that every example has, given one for each in the order of the batch.

    Raises:
        SplitError: they differ.
    """
    kinds: dict[Any, int] = {}
    which = [kinds.setdefault(value, len(kinds)) for value in values]
    if len(kinds) > 1:
        raise SplitError(_groups(torch.tensor(which)))
    return values[0]


def _bits(values: Tensor) -> Tensor:
    """Return the numbers of every example as bytes: NaN is like itself, and 0.0 is not like −0.0."""
    flat = values.reshape(len(values), -1).contiguous()
    return flat if flat.dtype == torch.bool or flat.shape[1] == 0 else flat.view(torch.uint8)


def _groups(which: Tensor) -> list[Tensor]:
    return [(which == group).nonzero().flatten() for group in range(int(which.max()) + 1)]
