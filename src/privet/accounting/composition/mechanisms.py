"""The Laplace and Gaussian mechanisms for a number or vector of known sensitivity; their events say what they cost."""

from __future__ import annotations

__all__ = [
    "gaussian_deviation",
    "gaussian_deviation_classical",
    "laplace_scale",
]

import math

from privet.accounting.classic import gaussian
from privet.accounting.root_finding import smallest_multiplier
from privet.errors import between, positive


def laplace_scale(*, epsilon: float, sensitivity: float) -> float:
    """Return the scale b of Laplace noise for (ε, 0)-DP: L1 sensitivity/ε (Dwork, McSherry, Nissim, Smith 2006)."""
    return positive("sensitivity", sensitivity) / positive("epsilon", epsilon)


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
