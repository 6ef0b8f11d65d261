"""The Laplace and Gaussian mechanisms for a number or vector of known sensitivity."""

from __future__ import annotations

import math

from privet.accounting.classic import gaussian
from privet.accounting.root_finding import smallest_multiplier
from privet.errors import InvalidArgumentError, between, positive, real


def laplace_scale(*, epsilon: float, sensitivity: float) -> float:
    """Return the scale b of Laplace noise for (ε, 0)-DP: L1 sensitivity/ε (Dwork, McSherry, Nissim, Smith 2006)."""
    return positive("sensitivity", sensitivity) / positive("epsilon", epsilon)


def laplace_delta(*, epsilon: float, scale: float, sensitivity: float) -> float:
    """Return δ at ε ≥ 0 of the scalar Laplace mechanism: 1 − e^{(ε − sensitivity/scale)/2}, at least 0."""
    if real("epsilon", epsilon) < 0:
        raise InvalidArgumentError("epsilon", epsilon, "at least 0")
    loss = positive("sensitivity", sensitivity) / positive("scale", scale)
    return max(0.0, -math.expm1((epsilon - loss) / 2))


def laplace_epsilon(*, scale: float, sensitivity: float, delta: float = 0.0) -> float:
    """Return ε at δ in [0, 1) of the scalar Laplace mechanism: sensitivity/scale + 2·log(1 − δ), at least 0."""
    if not 0 <= real("delta", delta) < 1:
        raise InvalidArgumentError("delta", delta, "at least 0 and below 1")
    return max(0.0, positive("sensitivity", sensitivity) / positive("scale", scale) + 2 * math.log1p(-delta))


def gaussian_deviation_classical(*, epsilon: float, delta: float, sensitivity: float) -> float:
    """Return the standard deviation of the classical Gaussian mechanism for ε in (0, 1): √(2·ln(1.25/δ))·sensitivity/ε.

    Dwork, Roth 2014, Theorem A.1; the sensitivity is in L2 norm.
    """
    between("epsilon", epsilon, 0.0, 1.0, "Use gaussian_deviation, which holds for every ε and needs less noise.")
    between("delta", delta, 0.0, 1.0)
    return math.sqrt(2 * math.log(1.25 / delta)) * positive("sensitivity", sensitivity) / epsilon


def gaussian_deviation(*, epsilon: float, delta: float, sensitivity: float) -> float:
    """Return the smallest standard deviation of Gaussian noise for (ε, δ)-DP, at most one part in 10⁵ above.

    Balle, Wang 2018, "Improving the Gaussian Mechanism for Differential Privacy"; the sensitivity is in L2 norm.

    >>> round(gaussian_deviation(epsilon=1.0, delta=1e-5, sensitivity=1.0), 2)
    3.73
    """
    target, size = positive("epsilon", epsilon), positive("sensitivity", sensitivity)
    between("delta", delta, 0.0, 1.0)
    return size * smallest_multiplier(lambda sigma: gaussian.epsilon(1 / sigma, delta), target)


def gaussian_epsilon(*, deviation: float, delta: float, sensitivity: float) -> float:
    """Return ε at δ of Gaussian noise with this standard deviation > 0."""
    between("delta", delta, 0.0, 1.0)
    return gaussian.epsilon(positive("sensitivity", sensitivity) / positive("deviation", deviation), delta)
