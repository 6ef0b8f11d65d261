"""Privacy profile δ(ε) of objective perturbation, followed by Gaussian noise on the minimiser.

Let F(θ) = Σℓ(θ; z) + ½Λ‖θ‖² + ⟨b, θ⟩ with b ~ N(0, s²I), and let a neighbour have one more example z. The minimiser determines b,
so the densities of the minimisers for both data sets can be compared: at any θ, the two vectors b differ by the gradient g of z,
and the volume elements by det(∇²F + ∇²ℓ)/det(∇²F). With µ = L/s this gives, in either direction between the neighbours,

    loss ≤ ⟨g, b⟩/s² + ‖g‖²/(2s²) + J ≤ max(0, X₁, …, X_T) + µ²/2 + J,        each X_i ~ N(0, µ²),

where J bounds the logarithm of the ratio of determinants, and the gradient of a linear model's loss pushes in one of T directions
that do not depend on b. The maximum is replaced by a sum over the T directions. A Gaussian release with parameter µ₂ follows,
given the minimiser, so δ(ε) is the mean of its profile at ε minus that loss.

The minimiser determines b also for a loss with a continuous gradient that is only piecewise differentiable, such as Huber's: b is
then a Lipschitz function of θ with a Lipschitz inverse, and densities change by the determinant almost everywhere.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import log_ndtr

Array = NDArray[np.float64]

# Cells of the numerical integral over X, in standard deviations; the function is taken at the upper end of each cell.
_EDGES = np.concatenate([np.linspace(0.0, 12.0, 2**15 + 1), np.linspace(12.0, 38.0, 2**10 + 1)[1:]])
_MASSES = np.exp(log_ndtr(-_EDGES[:-1])) - np.exp(log_ndtr(-_EDGES[1:]))
_BEYOND = float(np.exp(log_ndtr(-_EDGES[-1])))
# Hides rounding errors of the sums.
_MARGIN = 1 + 1e-9


def composed_delta(epsilon: float, *, mu: float, tails: int, log_determinant: float, output_mu: float = 0.0) -> float:
    """Return an upper bound on δ at ε ≥ 0 of objective perturbation and the noise on its minimiser.

    Args:
        mu: µ > 0, the largest gradient L over the standard deviation s of b.
        tails: T ≥ 1.
        log_determinant: J ≥ 0.
        output_mu: µ₂ ≥ 0 of the Gaussian release that follows; 0 if the exact minimiser is released.

    Guarantee:
        The integral over X takes the value at the upper end of each of its 34,000 cells, so its error only increases δ.

    Source:
        Redberg, Koskela, Wang 2023, "Improving the Privacy and Practicality of Objective Perturbation for Differentially Private
        Linear Learners", privacy profile for generalised linear models, which is this formula for T = 2 and µ₂ = 0. The bound for
        T directions, and the signs of the losses here, which save a factor of two in δ for two classes, follow the same proof.
    """
    room = epsilon - log_determinant - mu**2 / 2
    least = _gaussian_delta(np.array([room]), output_mu)[0]
    increases = _gaussian_delta(room - mu * _EDGES[1:], output_mu) - least
    total = least + tails * (float(np.dot(_MASSES, increases)) + _BEYOND * (1 - least))
    return min(1.0, max(0.0, float(total)) * _MARGIN)


def composed_epsilon(delta: float, *, mu: float, tails: int, log_determinant: float, output_mu: float = 0.0) -> float:
    """Return an upper bound on ε at δ in (0, 1); arguments as for `composed_delta`."""

    def excess(epsilon: float) -> float:
        found = composed_delta(epsilon, mu=mu, tails=tails, log_determinant=log_determinant, output_mu=output_mu)
        return math.log(max(found, 1e-300)) - math.log(delta)

    if excess(0.0) <= 0:
        return 0.0
    high = 1.0
    while excess(high) > 0:
        high *= 2
    # `brentq` ends on either side of the root, at most its tolerance away.
    return float(brentq(excess, 0.0, high, xtol=1e-10, rtol=1e-10)) * (1 + 1e-9) + 1e-9


def _gaussian_delta(epsilons: Array, mu: float) -> Array:
    """Return δ of the Gaussian mechanism at any real ε: Φ(µ/2 − ε/µ) − e^ε·Φ(−µ/2 − ε/µ)."""
    if mu == 0.0:
        return -np.expm1(np.minimum(epsilons, 0.0))
    first = log_ndtr(mu / 2 - epsilons / mu)
    second = epsilons + log_ndtr(-mu / 2 - epsilons / mu)
    return np.asarray(np.exp(first) * -np.expm1(np.minimum(second - first, 0.0)))
