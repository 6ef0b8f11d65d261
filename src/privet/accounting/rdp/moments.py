"""The moments accountant as originally published, for comparison with papers: orders up to 33, classic conversion."""

from __future__ import annotations

__all__ = ["DIRECTION", "LARGEST_MOMENT", "epsilon"]

import math
from collections.abc import Sequence

import numpy as np

from privet.accounting import rdp
from privet.accounting.events import Release

DIRECTION = "upper bound"
LARGEST_MOMENT = 32
# Moment λ is Rényi order λ + 1.
_PLACES = np.array([int(np.argmin(np.abs(rdp.ORDERS - order))) for order in range(2, LARGEST_MOMENT + 2)])


def epsilon(events: Sequence[Release], delta: float, adjacency: str) -> float:
    """Return ε at δ: the minimum of (Σ log moment(λ) + log 1/δ)/λ over λ = 1, …, 32.

    Source:
        Abadi et al. 2016, "Deep Learning with Differential Privacy", Theorem 2.

    >>> from privet.accounting.events import Event
    >>> round(epsilon([Event(0.01, 4.0, 10_000)], 1e-5, "add-remove"), 2)
    1.26
    """
    orders = np.arange(1, LARGEST_MOMENT + 1)
    divergences = rdp.curve(events, adjacency)[_PLACES]
    return float(np.min(divergences + math.log(1 / delta) / orders))
