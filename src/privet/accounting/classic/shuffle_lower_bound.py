"""Lower bound on the ε of shuffled batches, which shows how wrong accounting for them as Poisson sampling is."""

from __future__ import annotations

__all__ = ["epsilon_lower_bound"]

import numpy as np
from scipy.special import log_ndtr

from privet.errors import between, count, positive


def epsilon_lower_bound(*, noise_multiplier: float, steps: int, delta: float) -> float:
    """Return a lower bound on the ε of one epoch of shuffled batches at δ.

    Args:
        noise_multiplier: σ > 0 of every step.
        steps: number of batches in the epoch, ≥ 1.
        delta: δ in (0, 1).

    Returns:
        ε ≥ 0: any accountant that claims less for zero-out neighbours is wrong.

    Guarantee:
        An attacker who controls all other examples can make every batch sum to a constant, except the target example's batch,
        which exceeds it by 2 with the target and by 1 without. The test whether the largest sum exceeds a threshold c tells the
        two apart, and P[max > c] ≤ e^ε·Q[max > c] + δ must hold for every c.

    Source:
        Chua, Ghazi, Kamath, Kumar, Manurangsi, Sinha, Zhang 2024, "How Private are DP-SGD Implementations?".

    >>> round(epsilon_lower_bound(noise_multiplier=0.5, steps=10_000, delta=1e-6), 2)
    10.99
    """
    sigma, number = positive("noise_multiplier", noise_multiplier), count("steps", steps)
    between("delta", delta, 0.0, 1.0)
    thresholds = np.linspace(-10 * sigma, 2 + 40 * sigma, 20_001)
    others = (number - 1) * log_ndtr(thresholds / sigma)
    seen, unseen = (-np.expm1(others + log_ndtr((thresholds - centre) / sigma)) for centre in (2.0, 1.0))
    sure = (seen > delta) & (unseen > 1e-290)
    claims = np.log((seen[sure] - delta) / unseen[sure])
    return max(0.0, float(claims.max(initial=0.0)))
