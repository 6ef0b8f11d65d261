"""Evaluation of tilted Fourier series: δ of a composition at any ε, and ε at any δ; possible rounding is added to δ."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from privet.accounting.pld.discrete_loss import Array
from privet.accounting.pld.transforms import Spectrum

_PRECISION = 1e-13


@dataclass(frozen=True)
class Series:
    """A part of δ, at every ε."""

    tilt: float  # θ
    log_moment: float  # log E[e^{θ·loss}; loss < ∞] of this part
    angular: Array  # (K,) frequencies of the sum
    shares: Spectrum  # (K,) their contributions to δ·e^{θε − log_moment} at ε = 0
    rounding: float  # bound on the error of that sum, at any ε

    def at(self, epsilon: float) -> tuple[float, float, float]:
        """Return δ·e^{θε − log_moment} at ε, the rate at which δ falls there in the same unit, and the unit's logarithm."""
        terms = self.shares * np.exp(-1j * epsilon * self.angular)
        summed = max(float(terms.real.sum()), 0.0)
        falling = self.tilt * summed - float(np.dot(self.angular, terms.imag))
        return summed, falling, self.log_moment - self.tilt * epsilon


@dataclass(frozen=True)
class ComposedLoss:
    """The privacy losses of a composition in one direction between neighbours, as an upper bound on δ at every ε.

    `reserve` is the smallest share of δ that counts as rounding. It depends only on the numbers of releases and exceeds the
    rounding of most sums, so that two sums differ by what is composed and not by how it is summed.
    """

    series: tuple[Series, ...]  # parts whose sum is δ
    reserve: float
    infinite: float  # probability of an infinite loss

    def _at(self, epsilon: float) -> tuple[float, float, float, float]:
        """Return δ from finite losses, a bound on its rounding, the rate at which both fall, and the log of their unit."""
        each = [series.at(epsilon) for series in self.series]
        unit, summed, rounded, falling = max(log for *_, log in each), 0.0, 0.0, 0.0
        for series, (value, slope, log) in zip(self.series, each, strict=True):
            scale = math.exp(log - unit)
            summed += scale * value
            rounded += scale * series.rounding
            falling += scale * (slope + series.tilt * series.rounding)
        return summed, rounded, falling, unit

    def _log(self, epsilon: float) -> tuple[float, float]:
        """Return log δ at ε without infinite losses, and its approximate rate of decrease."""
        summed, rounded, falling, unit = self._at(epsilon)
        total = summed + max(rounded, self.reserve * summed)
        return unit + math.log(total), falling / total

    def delta(self, epsilon: float) -> float:
        """Return δ at ε ≥ 0."""
        return min(1.0, math.exp(min(self._log(epsilon)[0], 0.0)) + self.infinite)

    def is_rounded(self, epsilon: float) -> bool:
        """Return whether rounding at ε may exceed the reserve, so that δ is larger than necessary."""
        summed, rounded, *_ = self._at(epsilon)
        return rounded > self.reserve * summed

    def epsilon(self, delta: float, guess: float) -> float:
        """Return the smallest ε ≥ 0 for δ in (0, 1), at most a relative 1e-12 above; infinity if there is none."""
        if self.infinite >= delta:
            return math.inf
        target = math.log(delta) + math.log1p(-self.infinite / delta)
        if self._log(0.0)[0] <= target:
            return 0.0
        flattest = min(series.tilt for series in self.series) / 2
        low, high, epsilon = 0.0, math.inf, guess
        while True:  # bracketed Newton's method; log δ is nearly linear
            at, slope = self._log(epsilon)
            low, high = (epsilon, high) if at > target else (low, epsilon)
            step = (at - target) / max(slope, flattest)
            if abs(step) <= _PRECISION * epsilon or low >= high * (1 - _PRECISION):
                return (epsilon if math.isinf(high) else min(high, epsilon + abs(step))) * (1 + 2 * _PRECISION)
            epsilon = epsilon + step if low < epsilon + step < high else (low + high) / 2
