"""Data-dependent control flow: a pass covers the examples that take the same path, and is split where they differ.

A Python value that controls a model (`.item()`, `if x.sum() > 0`, the number of True entries in a mask) is read from the
physical batch. If it is the same for all examples, each sees what it would see alone. Otherwise `SplitError` lists groups of
examples that agree, and the pass restarts for each group. So no example affects another's path: in the worst case every example
forms its own group.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import torch
from torch import Tensor

from privet.gradients.core.batching import run_on_physical_batch


class SplitError(BaseException):
    """Examples of a pass differ in a value that controls the model. User code that catches every `Exception` does not catch it.

    Attributes:
        groups: the positions of those that agree.
        call: name of the function that read the value; empty if none of torch's did.
    """

    def __init__(self, which: Sequence[int]) -> None:
        super().__init__()
        # Lists: a tensor that is made within a pass may belong to it.
        self.groups = [[place for place, each in enumerate(which) if each == group] for group in range(max(which) + 1)]
        self.call = ""


def agree(token: Tensor, x: Tensor) -> Tensor:
    """Return the value of a batched tensor that all examples share bit for bit; raise a `SplitError` if they differ."""
    seen: list[Tensor] = []

    def look(physical: Tensor) -> Tensor:
        seen.append(physical.detach())
        return physical

    run_on_physical_batch(token, look, (x,))
    values = seen[0]
    if len(values) > 1:
        bits = _to_bytes(values)
        if not bool((bits == bits[:1]).all()):
            raise SplitError(torch.unique(bits, dim=0, return_inverse=True)[1].tolist())
    return values[0]


def agree_on_kinds(kinds: Sequence[Hashable]) -> None:
    """Raise a `SplitError` unless all examples have one kind of result, such as its shape."""
    known: dict[Hashable, int] = {}
    which = [known.setdefault(kind, len(known)) for kind in kinds]
    if len(known) > 1:
        raise SplitError(which)


def _to_bytes(values: Tensor) -> Tensor:
    """Return each example's numbers as bytes, so that NaN equals itself and 0.0 differs from −0.0."""
    flat = values.reshape(len(values), -1).contiguous()
    return flat if flat.dtype == torch.bool or flat.shape[1] == 0 else flat.view(torch.uint8)
