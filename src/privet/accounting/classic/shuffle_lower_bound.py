"""How wrong it is to account a shuffle as if it were Poisson sampling: a lower bound on what an attacker can see."""

from __future__ import annotations

import numpy as np
from scipy.special import log_ndtr

from privet.errors import between, count, positive


def epsilon_lower_bound(*, noise_multiplier: float, steps: int, delta: float) -> float:
    """Return an ε that one epoch of shuffled batches certainly exceeds, or equals, at δ.

    Args:
        noise_multiplier: σ > 0 of every step.
        steps: number of batches in the epoch, ≥ 1.
        delta: δ in (0, 1).

    Returns:
        ε ≥ 0: no accountant that claims less is right, for neighbours by zeroing out.

    Guarantee:
        An attacker who knows everybody else can arrange that every batch but the example's sums to a constant, and the example's
        to 2 or 1 more, with it and without. Looking only at whether the largest sum exceeds a threshold tells the two apart:
        P[max > c] ≤ e^ε·Q[max > c] + δ for every c.

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
