"""AUROC of a classifier: how well its scores rank the examples of each class above all others."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
_Z = NormalDist().inv_cdf(0.975)


def rank_classes(labels: NDArray[np.int64], scores: Floats) -> tuple[float | None, tuple[float, float] | None]:
    """Return the mean AUROC, one class against the rest, and its 95 % interval; both None if all examples have one class.

    Args:
        labels: (N,) classes in [0, K).
        scores: (N, K) numbers that grow with the probability of each class. NaN, from a diverged model, makes the AUROC NaN.

    A class without examples, or with all of them, has no AUROC and is left out. There is no interval for NaN, or if every example
    is ranked as well as the others, as in a perfect ranking.

    Source: DeLong, DeLong, Clarke-Pearson 1988, "Comparing the areas under two or more correlated receiver operating
        characteristic curves", with the divisor N; the interval is symmetric on the scale of log-odds, so it stays within [0, 1].
    """
    known = [label for label in range(scores.shape[1]) if 0 < np.count_nonzero(labels == label) < len(labels)]
    if not known:
        return None, None
    if np.isnan(scores).any():
        return math.nan, None
    areas, influences = zip(*(_rank(labels == label, scores[:, label]) for label in known), strict=True)
    area, influence = float(np.mean(areas)), np.mean(influences, axis=0)
    error = float(np.sqrt(np.square(influence).sum())) / len(labels)
    odds = area * (1 - area)
    if error == 0 or odds == 0:
        return area, None
    low, high = (1 / (1 + (1 - area) / area * math.exp(-side * _Z * error / odds)) for side in (-1, 1))
    return area, (low, high)


def _rank(positive: NDArray[np.bool_], scores: Floats) -> tuple[float, Floats]:
    """Return the AUROC, in which a tie counts one half, and the influence of each example on it, (N,) with mean zero."""
    _, places, counts = np.unique(scores, return_inverse=True, return_counts=True)
    hits = np.bincount(places, positive, minlength=len(counts))
    misses = counts - hits
    beaten = (np.cumsum(misses) - misses / 2)[places] / misses.sum()  # share of the others below a positive's score
    beating = 1 - (np.cumsum(hits) - hits / 2)[places] / hits.sum()  # share of the positives above another's score
    area = float(beaten[positive].mean())
    share = positive.mean()
    return area, np.where(positive, (beaten - area) / share, (beating - area) / (1 - share))
