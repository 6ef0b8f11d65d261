"""Noised sums: releases, already paid for.

Only a `NoisedSum` reaches an optimizer. Adding to one is a `TypeError` that says what to do instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from privet._utils.tensors import Tensors, check_public_number, scale_tensors


@dataclass(frozen=True, eq=False)
class NoisedSum:
    """A clipped sum with Gaussian noise on it: a release, already paid for, free to post-process.

    Args:
        tensors: parameter name → noisy sum, shaped like the parameter.
        sensitivity: L2 sensitivity that the noise was scaled to.
        standard_deviation: of the noise on every coordinate of a tensor whose noise scale is 1.
        noise_scales: as in the clipped sum.
        support: as in the clipped sum; elsewhere there is neither data nor noise, but zero.
    """

    tensors: Tensors
    sensitivity: float
    standard_deviation: float
    noise_scales: Mapping[str, float] = field(default_factory=dict)
    support: Tensors | None = None

    def __mul__(self, factor: object) -> NoisedSum:
        number = check_public_number(factor, "scaling a NoisedSum")
        size = abs(number)
        return replace(
            self,
            tensors=scale_tensors(self.tensors, number),
            sensitivity=self.sensitivity * size,
            standard_deviation=self.standard_deviation * size,
        )

    __rmul__ = __mul__

    def __truediv__(self, divisor: object) -> NoisedSum:
        return self * (1.0 / check_public_number(divisor, "dividing a NoisedSum"))

    def divide_(self, divisor: float) -> NoisedSum:
        """Return the release divided by a public number; it takes over this one's memory, which must then be used no more."""
        factor = 1.0 / check_public_number(divisor, "dividing a NoisedSum")
        for tensor in self.tensors.values():
            tensor.mul_(factor)
        size = abs(factor)
        return replace(self, sensitivity=self.sensitivity * size, standard_deviation=self.standard_deviation * size)

    def __add__(self, other: object) -> NoisedSum:
        raise TypeError(
            f"a NoisedSum is one release; adding {type(other).__name__} to it is not a release of its own. Combine released "
            "tensors (.tensors) as you like: that is post-processing"
        )

    __radd__ = __sub__ = __rsub__ = __add__
