"""Exact draws from uniform 64-bit words, without modulo bias: binomial numbers, subsets, permutations and bins."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from privet._utils.randomness import Words

Indices = NDArray[np.int64]


@lru_cache(maxsize=8)
def _binomial_table(trials: int, probability: float) -> tuple[int, NDArray[np.float64]]:
    """Return (k₀, P[K ≤ k₀ + j] for j = 0, 1, …) over every k that a 53-bit uniform can reach."""
    from scipy.special import betaincc

    mean = trials * probability
    reach = 12 * np.sqrt(mean * (1 - probability)) + 50
    low, high = max(0, int(mean - reach)), min(trials - 1, int(mean + reach) + 1)
    # P[K ≤ k] as an incomplete beta function; scipy's bdtr, meant for this, is off by 0.07 at 10⁸ trials.
    counts = np.arange(low, high + 1, dtype=np.float64)
    distribution = np.asarray(betaincc(counts + 1, trials - counts, probability))
    return low, np.append(distribution, 1.0)


def binomial(trials: int, probability: float, uniform: float) -> int:
    """Return the quantile of Binomial(trials, probability) at `uniform`, a multiple of 2⁻⁵³ in [0, 1); exact to about 1e-13."""
    if probability == 1.0:
        return trials
    low, distribution = _binomial_table(trials, probability)
    return low + int(np.searchsorted(distribution, uniform, side="right"))


def uniform(words: Words) -> float:
    """Return a number that is uniform over the multiples of 2⁻⁵³ in [0, 1)."""
    return float(words(1)[0] >> np.uint64(11)) * 2.0**-53


def _accept(bound: int, size: int, words: Words) -> Indices:
    """Draw `size` words, reject those beyond the largest multiple of the bound, and return the rest modulo the bound."""
    limit = 2**64 - 2**64 % bound
    drawn = words(size)
    accepted = drawn if limit == 2**64 else drawn[drawn < np.uint64(limit)]
    return (accepted % np.uint64(bound)).astype(np.int64)


def below(bound: int, size: int, words: Words) -> Indices:
    """Return `size` independent uniform draws from {0, …, bound−1}."""
    found = np.empty(0, dtype=np.int64)
    while len(found) < size:
        found = np.concatenate([found, _accept(bound, size - len(found), words)])
    return found


def distinct(size: int, population: int, words: Words) -> Indices:
    """Return a uniform `size`-subset of {0, …, population−1}, sorted.

    Candidates are drawn uniformly and the first `size` distinct ones are kept, so every subset is equally likely.
    """
    if 2 * size > population:
        return np.setdiff1d(np.arange(population, dtype=np.int64), distinct(population - size, population, words))
    chosen = np.empty(0, dtype=np.int64)
    while len(chosen) < size:
        candidates = np.concatenate([chosen, _accept(population, size - len(chosen) + 16, words)])
        chosen = candidates[:size]
        ordered = np.sort(chosen)
        if (ordered[1:] == ordered[:-1]).any():
            _, first = np.unique(candidates, return_index=True)
            chosen = candidates[np.sort(first)][:size]
    return np.sort(chosen)


def permutation(size: int, words: Words) -> Indices:
    """Return a uniform permutation of {0, …, size−1}: the sort order of `size` random words.

    Distinct words are in each order equally often. If two words are equal (probability below 1e-7 for a million words), all are
    drawn again.
    """
    while True:
        keys = words(size)
        order = np.argsort(keys, kind="stable")
        if (keys[order[1:]] != keys[order[:-1]]).all():
            return order.astype(np.int64, copy=False)
