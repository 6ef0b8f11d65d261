"""Confidence intervals of measured numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privet.errors import InvalidArgumentError, between, count, real


def wilson_interval(proportion: float, examples: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return the Wilson (1927) score interval of a proportion in [0, 1] observed on independent examples."""
    share, n = real("proportion", proportion), count("examples", examples)
    if not 0 <= share <= 1:
        raise InvalidArgumentError("proportion", proportion, "from 0 to 1", "Divide counts by the number of examples.")
    return noisy_interval(share, n, 0.0, confidence)


def noisy_interval(mean: float, examples: int, deviation: float, confidence: float = 0.95) -> tuple[float, float]:
    """Return the score interval of the expectation of a quantity in [0, 1], from a mean released with Gaussian noise on it.

    It is the Wilson interval with the variance of the noise added: all p with (mean − p)² ≤ z²·(p(1 − p)/N + deviation²). For any
    quantity in [0, 1], p(1 − p) is the largest variance, so the interval is conservative for others than yes or no.

    >>> [round(end, 3) for end in noisy_interval(0.8, 1000, 0.01)]
    [0.767, 0.83]
    """
    centre, n = real("mean", mean), count("examples", examples)
    if not 0 <= centre <= 1:
        raise InvalidArgumentError("mean", mean, "from 0 to 1", "Clip the released mean.")
    if real("deviation", deviation) < 0:
        raise InvalidArgumentError("deviation", deviation, "at least 0")
    z = NormalDist().inv_cdf((1 + between("confidence", confidence, 0, 1)) / 2)
    leading, linear, constant = 1 + z**2 / n, 2 * centre + z**2 / n, centre**2 - (z * deviation) ** 2
    root = math.sqrt(linear**2 - 4 * leading * constant)
    return max(0.0, (linear - root) / (2 * leading)), min(1.0, (linear + root) / (2 * leading))


def bootstrap_interval(
    statistic: Callable[..., Any], *columns: ArrayLike, resamples: int = 1000, confidence: float = 0.95, seed: int = 0
) -> tuple[Any, Any]:
    """Return the basic bootstrap interval of a statistic of independent examples, shaped like the statistic.

    The basic interval [2θ − q_high, 2θ − q_low] corrects the bias of the statistic, which the percentile interval doubles:
    calibration errors are biased upwards. It therefore need not contain the estimate itself.

    Args:
        statistic: function of the columns, restricted to the same rows, that returns a number or an array of numbers.
        columns: one row for each of N ≥ 1 examples, in the same order.
        resamples: number of bootstrap samples, each of N examples drawn with replacement, ≥ 2.
        confidence: approximate coverage probability, in (0, 1).
        seed: seed of the resampling.

    Source: Davison, Hinkley 1997, "Bootstrap Methods and their Application", Eq. 5.6.

    >>> low, high = bootstrap_interval(np.mean, np.arange(100.0))
    >>> bool(low < 49.5 < high), round(high - low)
    (True, 11)
    """
    rows = [np.asarray(column) for column in columns]
    if len({len(row) for row in rows}) != 1 or len(rows[0]) == 0:
        raise InvalidArgumentError("columns", [len(row) for row in rows], "of the same length, at least 1")
    count("resamples", resamples, minimum=2)
    tail = (1 - between("confidence", confidence, 0, 1)) / 2
    generator, n = np.random.default_rng(seed), len(rows[0])
    draws = (generator.integers(n, size=n) for _ in range(resamples))
    found: NDArray[np.float64] = np.array([statistic(*(row[drawn] for row in rows)) for drawn in draws], dtype=np.float64)
    estimate = np.asarray(statistic(*rows), dtype=np.float64)
    low, high = (2 * estimate - np.quantile(found, share, axis=0) for share in (1 - tail, tail))
    return (float(low), float(high)) if estimate.ndim == 0 else (low, high)
