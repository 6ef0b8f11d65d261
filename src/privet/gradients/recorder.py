"""What the handlers of torch functions report to while a model runs."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from privet.gradients.tape import Tape
from privet.gradients.uses import Use, together


class Recorder:
    """Collects the uses of the followed parameters during one forward and backward pass.

    Args:
        examples: B, the size of the first dimension of everything that belongs to examples.
        parameters: name → trainable parameter to follow.
    """

    def __init__(self, examples: int, parameters: Mapping[str, Tensor]) -> None:
        self.examples, self.parameters = examples, parameters
        self._names = {id(parameter): name for name, parameter in parameters.items()}
        self._uses: dict[str, list[Use]] = {}
        self._orders: MutableMapping[Tensor, tuple[int, Tensor]] = WeakTensorKeyDictionary()
        # An input that asks for a gradient keeps a layer in the graph when nothing before it does.
        self.anchor = torch.zeros((), device=next(iter(parameters.values())).device, requires_grad=True)

    def follows(self, tensor: object) -> bool:
        """Return whether this very tensor is a followed parameter."""
        return id(tensor) in self._names

    def dimension(self, x: Tensor, trailing: int) -> int | None:
        """Return the dimension along which `x` holds the examples: one of the first two, before the last `trailing`; else None."""
        for dimension in range(min(2, x.dim() - trailing)):
            if x.shape[dimension] == self.examples:
                return dimension
        return None

    def add(self, parameter: Tensor | None, use: Use) -> None:
        """Record one use."""
        self._uses.setdefault(self._names[id(parameter)], []).append(use)

    def note_order(self, tensor: Tensor, dimension: int, order: Tensor) -> None:
        """Note that a tensor holds example order[i] at place i of a dimension."""
        self._orders[tensor] = dimension % tensor.dim(), order

    def order(self, tensor: Tensor, dimension: int) -> Tensor | None:
        """Return the order that was noted of a tensor's dimension."""
        noted, order = self._orders.get(tensor, (None, None))
        return order if noted == dimension % tensor.dim() else None

    def tape(self) -> Tape:
        """Return what was recorded."""
        return Tape(self.examples, self.parameters, {name: together(uses) for name, uses in self._uses.items()})
