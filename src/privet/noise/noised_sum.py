"""Noised sums: releases that are already accounted for. Only a `NoisedSum` reaches an optimizer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from privet._utils.tensors import Tensors, scale_tensors
from privet.errors import check_public_number


@dataclass(frozen=True, eq=False)
class NoisedSum:
    """A clipped sum with Gaussian noise: a release that is accounted for and free to post-process."""

    tensors: Tensors  # parameter name → noisy sum, shaped like the parameter
    sensitivity: float  # L2 sensitivity to which the noise was scaled
    standard_deviation: float  # of the noise on every coordinate of a tensor with noise scale 1
    noise_scales: Mapping[str, float] = field(default_factory=dict)  # as in the clipped sum
    support: Tensors | None = None  # as in the clipped sum; coordinates outside of it are zero, without data or noise

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
