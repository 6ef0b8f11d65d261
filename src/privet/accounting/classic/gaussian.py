"""The Gaussian mechanism without sampling, exactly, and the Gaussian limit of compositions with sampling.

μ is the sensitivity over the noise standard deviation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from scipy.optimize import brentq
from scipy.special import log_ndtr

from privet.accounting.events import Event

_PRECISION = 1e-12
# μ above which rounding in `log_delta` is no longer small against ln δ, and a bound in closed form is as good.
_LARGEST_MU = 1e6
_LARGEST_EXPONENT = 100.0


def log_delta(mu: float, epsilon: float) -> float:
    """Return log δ(ε) of a μ-GDP mechanism: δ = Φ(−ε/μ + μ/2) − e^ε·Φ(−ε/μ − μ/2) (Balle, Wang 2018, Theorem 8)."""
    first, second = float(log_ndtr(mu / 2 - epsilon / mu)), epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))
    return first + math.log(-math.expm1(min(second - first, -1e-300)))


def epsilon(mu: float, delta: float) -> float:
    """Return the smallest ε ≥ 0 with δ(ε) ≤ δ for μ ≥ 0, at most a relative 1e-12 above; for μ above 10⁶, 1e-4.

    For these, it is μ²/2 + μ·√(2·ln(1/δ)): δ(ε) is at most Φ(μ/2 − ε/μ), which is below δ by the bound e^(−t²/2) on Φ(−t).
    """
    if mu == 0.0 or log_delta(mu, 0.0) <= math.log(delta):
        return 0.0
    high = mu * (mu / 2 + math.sqrt(2 * math.log(1 / delta)))
    if mu > _LARGEST_MU:
        return high
    most = high + 1.0
    found = float(brentq(lambda value: log_delta(mu, value) - math.log(delta), 0.0, most, xtol=_PRECISION, rtol=_PRECISION))
    return found * (1 + 2 * _PRECISION) + 2 * _PRECISION


def mu(epsilon: float, delta: float) -> float:
    """Return the µ of the Gaussian mechanism with this ε > 0 at this δ, to a relative 1e-9."""
    target, high = math.log(delta), 1.0
    while log_delta(high, epsilon) < target:
        high *= 2
    return float(brentq(lambda value: log_delta(value, epsilon) - target, 1e-12, high, xtol=1e-14, rtol=1e-9))


def _square(event: Event, adjacency: str) -> float:
    """Return the event's share of μ²: exact for q = 1, else the limit n·Var[log P/Q] as q → 0.

    With r₁ and r₋₁ the likelihood ratios of N(±1, σ²) to N(0, σ²), E[r₁²] = exp(1/σ²) and E[r₁r₋₁] = exp(−1/σ²), so
    Var[q(r₁ − 1)] = q²(exp(1/σ²) − 1) and Var[q(r₁ − r₋₁)] = 4q²·sinh(1/σ²).
    """
    q, inverse = event.sampling_rate, event.noise_multiplier**-2
    if q == 1.0:
        return event.count * inverse * (4 if adjacency == "replace-one" else 1)
    if inverse > _LARGEST_EXPONENT:
        return math.inf
    return event.count * q**2 * (4 * math.sinh(inverse) if adjacency == "replace-one" else math.expm1(inverse))


def limit_epsilon(events: Sequence[Event], delta: float, adjacency: str) -> float:
    """Return ε at δ of the Gaussian limit of the composition (Dong, Roth, Su 2022; Bu et al. 2020); exact when q = 1."""
    square = sum(_square(event, adjacency) for event in events)
    return math.inf if math.isinf(square) else epsilon(math.sqrt(square), delta)
