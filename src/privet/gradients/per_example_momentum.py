"""Per-example momentum: clipping of each example's average gradient over the steps."""

from __future__ import annotations

__all__ = ["Averages"]

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NoReturn

import torch
from torch import Tensor

from privet._utils.randomness import preserve_generators
from privet._utils.tensors import gradient_dtype
from privet.clipping import Rule
from privet.errors import USER_ERRORS, InvalidArgumentError
from privet.gradients.core.examples import Examples
from privet.gradients.core.per_example import DenseGrad, PerExampleGrad
from privet.gradients.core.private import raise_interrupt
from privet.gradients.engine import Engine, PartialSums
from privet.gradients.methods.tape import Tape
from privet.gradients.projection.subspace import Subspace
from privet.momentum import Momentum


class Averages:
    """The average gradients mᵢ of all examples. They are private, so this object can be neither saved nor copied.

    Args:
        momentum: weight of the current gradient, and the memory limit of the averages.
        examples: N.
        parameters: name → trainable parameter; its averages are stored on the same device.

    Raises:
        InvalidArgumentError: the averages would exceed the memory limit.
    """

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

    def clipped_sum(
        self,
        engine: Engine,
        examples: Examples,
        clipping: Rule,
        indices: Tensor,
        *,
        masks: Mapping[str, Tensor] | None = None,
        subspace: Subspace | None = None,
    ) -> PartialSums:
        """Update the averages with the gradients of a batch, and return Σᵢ w(‖mᵢ‖)·mᵢ over it.

        An example whose gradient is not finite contributes exactly zero, and its average is unchanged.

        Args:
            engine: computes the gradients.
            examples: the batch.
            clipping: the clipping rule, which computes weights from norms.
            indices: of the examples in the data set, (B,), all different.
            masks, subspace: as for `privet.clipped_sum`.
        """
        with preserve_generators():
            return engine.clip(self._average_tapes(engine, examples, indices), examples.count, clipping, masks, subspace=subspace)

    def _average_tapes(self, engine: Engine, examples: Examples, indices: Tensor) -> Iterator[tuple[Tensor, Tape]]:
        for index, gradients in _gradients(engine, examples):
            where = indices[index].to(self._begun.device)
            yield index, Tape(len(index), self._parameters, self._update(gradients, where))

    def _update(self, gradients: Mapping[str, Tensor], where: Tensor) -> dict[str, PerExampleGrad]:
        """Return the next averages of these examples; store those that are finite."""
        weight = torch.where(self._begun[where], self._decay, 1.0)
        finite = torch.ones_like(self._begun[where])
        found: dict[str, Tensor] = {}
        for name, gradient in gradients.items():
            own = weight.to(gradient.dtype).view(-1, *[1] * (gradient.dim() - 1))
            found[name] = torch.lerp(self._averages[name][where], gradient, own)
            finite &= found[name].flatten(1).isfinite().all(1) if gradient.dim() > 1 else found[name].isfinite()
        for name, average in found.items():
            self._averages[name][where[finite]] = average[finite]
        self._begun[where[finite]] = True
        return {name: DenseGrad(average) for name, average in found.items()}


def _gradients(engine: Engine, examples: Examples) -> Iterator[tuple[Tensor, dict[str, Tensor]]]:
    """Yield positions of examples and their gradients; one by one where one of them cannot be formed with the others."""
    for index, tape in engine.tapes(examples):
        try:
            found = tape.gradients()
        except USER_ERRORS as error:
            raise_interrupt(error)
            if not engine.skip_errors:
                raise
            for position, alone in replace(engine, method="loop").tapes(examples.select(index)):
                yield index[position], alone.gradients()
        else:
            yield index, found
