"""What the handlers of torch functions report to while a model runs."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

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

    def tape(self) -> Tape:
        """Return what was recorded."""
        return Tape(self.examples, self.parameters, {name: together(uses) for name, uses in self._uses.items()})
