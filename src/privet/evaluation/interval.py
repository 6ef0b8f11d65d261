"""How far a measured proportion can be from the true one."""

from __future__ import annotations

import math
from statistics import NormalDist

from privet.errors import InvalidArgumentError, between, count, real


def wilson_interval(proportion: float, examples: int, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson score interval of a proportion that was measured on independent examples.

    Args:
        proportion: the share that was observed, in [0, 1].
        examples: how many examples it was observed on, at least 1.
        confidence: how often such an interval covers the true share, in (0, 1).

    Returns:
        The lower and the upper end, both in [0, 1].

    Raises:
        InvalidArgumentError: an argument is outside its range.

    Source: E. B. Wilson, "Probable inference, the law of succession, and statistical inference", JASA 22 (1927).
    """
    share, n = real("proportion", proportion), count("examples", examples)
    if not 0 <= share <= 1:
        raise InvalidArgumentError("proportion", proportion, "from 0 to 1", "Divide counts by the number of examples.")
    z = NormalDist().inv_cdf((1 + between("confidence", confidence, 0, 1)) / 2)
    centre = share + z**2 / (2 * n)
    spread = z * math.sqrt(share * (1 - share) / n + (z / (2 * n)) ** 2)
    scale = 1 + z**2 / n
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)
