"""Noised sums: releases that are already accounted for. Only a `NoisedSum` reaches an optimizer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from privet._utils.tensors import Tensors, scale_tensors
from privet.errors import check_public_number


@dataclass(frozen=True, eq=False)
class NoisedSum:
    """A clipped sum with Gaussian noise: a release that is accounted for and free to post-process.

    Args:
        tensors: parameter name → noisy sum, shaped like the parameter.
        sensitivity: L2 sensitivity to which the noise was scaled.
        standard_deviation: standard deviation of the noise on every coordinate of a tensor with noise scale 1.
        noise_scales, support: as in the clipped sum; coordinates outside the support are zero, without data or noise.
    """

    tensors: Tensors
    sensitivity: float
    standard_deviation: float
    noise_scales: Mapping[str, float] = field(default_factory=dict)
    support: Tensors | None = None

    def __mul__(self, factor: object) -> NoisedSum:
        number = check_public_number(factor, "scaling a NoisedSum")
        sensitivity, deviation = self.sensitivity * abs(number), self.standard_deviation * abs(number)
        scaled = scale_tensors(self.tensors, number)
        return replace(self, tensors=scaled, sensitivity=sensitivity, standard_deviation=deviation)

    __rmul__ = __mul__

    def __truediv__(self, divisor: object) -> NoisedSum:
        return self * (1.0 / check_public_number(divisor, "dividing a NoisedSum"))

    def __add__(self, other: object) -> NoisedSum:
        raise TypeError(
            f"a NoisedSum is one release; adding {type(other).__name__} to it does not give a new release. Combining released "
            "tensors (.tensors) is post-processing and always allowed"
        )

    __radd__ = __sub__ = __rsub__ = __add__
