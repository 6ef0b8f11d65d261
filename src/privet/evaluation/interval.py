"""How far a measured number can be from the true one."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

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


def bootstrap_interval(
    statistic: Callable[..., Any],
    *columns: ArrayLike,
    resamples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> tuple[Any, Any]:
    """Basic bootstrap interval of anything that is computed from independent examples.

    The examples are drawn anew, with replacement, as often as `resamples` says. The basic interval [2θ − q_high, 2θ − q_low]
    takes a statistic's bias back, where the percentile interval doubles it: calibration errors are biased upwards. So it need not
    hold the estimate itself.

    Args:
        statistic: equally many rows of every column → a number, or an array of them.
        columns: of one row for each of N ≥ 1 examples, in the same order.
        resamples: how often the examples are drawn anew, at least 2.
        confidence: how often such intervals cover the true value, about, in (0, 1).
        seed: of the resampling: the same arguments give the same interval.

    Returns:
        The lower and the upper end, each shaped like the statistic.

    Raises:
        InvalidArgumentError: an argument is outside its range, or the columns are not of one length.

    Source: Davison, Hinkley 1997, "Bootstrap Methods and their Application", Eq. 5.6.

    >>> low, high = bootstrap_interval(np.mean, np.arange(100.0))
    >>> bool(low < 49.5 < high), round(high - low)
    (True, 11)
    """
    rows = [np.asarray(column) for column in columns]
    if len({len(row) for row in rows}) != 1 or len(rows[0]) == 0:
        raise InvalidArgumentError("columns", [len(row) for row in rows], "of one length, which is at least 1")
    count("resamples", resamples, minimum=2)
    tail = (1 - between("confidence", confidence, 0, 1)) / 2
    generator, n = np.random.default_rng(seed), len(rows[0])
    draws = (generator.integers(n, size=n) for _ in range(resamples))
    found: NDArray[np.float64] = np.array([statistic(*(row[drawn] for row in rows)) for drawn in draws], dtype=np.float64)
    estimate = np.asarray(statistic(*rows), dtype=np.float64)
    low, high = (2 * estimate - np.quantile(found, share, axis=0) for share in (1 - tail, tail))
    return (float(low), float(high)) if estimate.ndim == 0 else (low, high)
