"""The Gaussian mechanism without sampling, exactly; μ is the sensitivity over the noise standard deviation."""

from __future__ import annotations

__all__ = ["epsilon", "hide_rounding", "log_delta", "mu"]

import math

from scipy.optimize import brentq
from scipy.special import log_ndtr

_PRECISION = 1e-12
# μ above which rounding in `log_delta` is no longer small against ln δ, and a bound in closed form is as good.
_LARGEST_MU = 1e6


def log_delta(mu: float, epsilon: float) -> float:
    """Return log δ(ε) of a μ-GDP mechanism: δ = Φ(−ε/μ + μ/2) − e^ε·Φ(−ε/μ − μ/2).

    Source:
        Balle, Wang 2018, "Improving the Gaussian Mechanism for Differential Privacy", Theorem 8.
    """
    first, second = float(log_ndtr(mu / 2 - epsilon / mu)), epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))
    return first + math.log(-math.expm1(min(second - first, -1e-300)))


def epsilon(mu: float, delta: float) -> float:
    """Return the smallest ε ≥ 0 with δ(ε) ≤ δ, at most a relative 1e-12 above; for μ above 10⁶, 1e-4.

    For these, it is μ²/2 + μ·√(2·ln(1/δ)): δ(ε) is at most Φ(μ/2 − ε/μ), which is below δ by the bound e^(−t²/2) on Φ(−t).

    Args:
        mu: μ ≥ 0.
        delta: δ in (0, 1).
    """
    if mu == 0.0 or log_delta(mu, 0.0) <= math.log(delta):
        return 0.0
    high = mu * (mu / 2 + math.sqrt(2 * math.log(1 / delta)))
    if mu > _LARGEST_MU:
        return high
    most = high + 1.0
    found = float(brentq(lambda value: log_delta(mu, value) - math.log(delta), 0.0, most, xtol=_PRECISION, rtol=_PRECISION))
    return found * (1 + 2 * _PRECISION) + 2 * _PRECISION


def hide_rounding(mu: float) -> float:
    """Return µ > 0 rounded up just enough to hide the rounding error of its ε."""
    return float(2.0 ** (math.ceil(math.log2(mu) * 2**33) / 2**33))


def mu(epsilon: float, delta: float) -> float:
    """Return the µ of the Gaussian mechanism with this ε at this δ, to a relative 1e-9.

    Args:
        epsilon: ε > 0.
        delta: δ in (0, 1).

    >>> from privet.accounting.classic import gaussian
    >>> round(gaussian.epsilon(gaussian.mu(3.0, 1e-5), 1e-5), 6)
    3.0
    """
    target, high = math.log(delta), 1.0
    while log_delta(high, epsilon) < target:
        high *= 2
    return float(brentq(lambda value: log_delta(value, epsilon) - target, 1e-12, high, xtol=1e-14, rtol=1e-9))
