"""Per-example momentum: clipping of each example's average gradient over the steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NoReturn

import torch
from torch import Tensor

from privet._utils.tensors import gradient_dtype
from privet.errors import InvalidArgumentError
from privet.gradients.core.per_example import DenseGrad, PerExampleGrad
from privet.gradients.methods.tape import Tape
from privet.momentum import Momentum


class Averages:
    """The average gradients mᵢ of all N examples. They are private, so this object can be neither saved nor copied."""

    def __init__(self, momentum: Momentum, examples: int, parameters: Mapping[str, Tensor]) -> None:
        size = examples * sum(parameter.numel() * gradient_dtype(parameter).itemsize for parameter in parameters.values())
        if size > momentum.most_bytes:
            raise InvalidArgumentError(
                "momentum.memory_limit", momentum.most_bytes, f"at least {size} bytes to keep the gradients of all examples",
                "Raise it if the device has that much memory, or use privet.momentum.InnerOuter, which stores none.",
            )  # fmt: skip
        assert momentum.averaging is not None
        self._decay, self._parameters = momentum.averaging, parameters
        self._averages = {
            name: parameter.detach().new_zeros(examples, *parameter.shape, dtype=gradient_dtype(parameter))
            for name, parameter in parameters.items()
        }
        self._begun = torch.zeros(examples, dtype=torch.bool, device=next(iter(parameters.values())).device)

    @classmethod
    def of(cls, momentum: Momentum | None, examples: int, parameters: Mapping[str, Tensor]) -> Averages | None:
        """Return the averages that a momentum asks for; None if it asks for none."""
        return None if momentum is None or momentum.averaging is None else cls(momentum, examples, parameters)

    def __reduce__(self) -> NoReturn:
        raise TypeError("the average gradients of single examples are private: they cannot be saved, sent or copied")

    def of_examples(self, indices: Tensor) -> Callable[[Tape, Tensor], Tape]:
        """Return a function that updates the averages of a batch and returns them in place of the gradients, for `Engine.clip`.

        An example whose gradient is not finite keeps its average; what is returned for it is not finite either.
        Args:
            indices: of the batch's examples in the data set, (B,), all different.
        """

        def average(tape: Tape, positions: Tensor) -> Tape:
            where = indices[positions].to(self._begun.device)
            return Tape(len(where), self._parameters, self._update(tape.gradients(), where))

        return average

    def _update(self, gradients: Mapping[str, Tensor], where: Tensor) -> dict[str, PerExampleGrad]:
        weight = torch.where(self._begun[where], self._decay, 1.0)
        finite = torch.ones_like(self._begun[where])
        found: dict[str, Tensor] = {}
        for name, gradient in gradients.items():
            own = weight.to(gradient.dtype).view(-1, *[1] * (gradient.dim() - 1))
            found[name] = torch.lerp(self._averages[name][where], gradient, own)
            finite &= found[name].flatten(1).isfinite().all(1) if gradient.dim() > 1 else found[name].isfinite()
        for name, average in found.items():  # a selection by `finite` would let the host wait for a device to count it
            kept, own = self._averages[name], finite.view(-1, *[1] * (average.dim() - 1))
            kept[where] = torch.where(own, average, kept[where])
        self._begun[where] = self._begun[where] | finite
        return {name: DenseGrad(average) for name, average in found.items()}
