"""Who takes part in a step: sampling schemes and the exact draws behind them.

Amplification by sampling is only as good as the secrecy of the draw, so the random words come from the same class of source
as the noise; they are handed in, which also lets a test hand in words of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from privet.errors import InvalidArgumentError, positive

Words = Callable[[int], NDArray[np.uint64]]
Indices = NDArray[np.int64]


@lru_cache(maxsize=8)
def _binomial_table(trials: int, probability: float) -> tuple[int, NDArray[np.float64]]:
    """Return (k₀, P[K ≤ k₀ + j] for j = 0, 1, …) over every k that a 53-bit uniform can reach."""
    from scipy.special import betaincc

    mean = trials * probability
    reach = 12 * np.sqrt(mean * (1 - probability)) + 50
    low, high = max(0, int(mean - reach)), min(trials - 1, int(mean + reach) + 1)
    # P[K ≤ k] as an incomplete beta function; bdtr, made for it, is off by 0.07 at 10⁸ trials.
    counts = np.arange(low, high + 1, dtype=np.float64)
    distribution = np.asarray(betaincc(counts + 1, trials - counts, probability))
    return low, np.append(distribution, 1.0)


def binomial(trials: int, probability: float, uniform: float) -> int:
    """Return the `uniform` quantile of Binomial(trials, probability), by inversion of its distribution function.

    Args:
        trials: number of examples N ≥ 1.
        probability: sampling rate q in (0, 1].
        uniform: in [0, 1), a multiple of 2⁻⁵³: each probability is met to within about 1e-13.
    """
    if probability == 1.0:
        return trials
    low, distribution = _binomial_table(trials, probability)
    return low + int(np.searchsorted(distribution, uniform, side="right"))


def distinct(size: int, population: int, words: Words) -> Indices:
    """Return a uniform `size`-subset of {0, …, population−1}, sorted.

    Candidates are drawn uniformly (words beyond the largest multiple of the population are rejected, so there is no
    modulo bias) and the first `size` different ones are kept: every subset is equally likely.
    """
    if 2 * size > population:
        return np.setdiff1d(np.arange(population, dtype=np.int64), distinct(population - size, population, words))
    limit = 2**64 - 2**64 % population
    chosen = np.empty(0, dtype=np.int64)
    while len(chosen) < size:
        drawn = words(size - len(chosen) + 16)
        accepted = drawn if limit == 2**64 else drawn[drawn < np.uint64(limit)]
        candidates = np.concatenate([chosen, (accepted % np.uint64(population)).astype(np.int64)])
        _, first = np.unique(candidates, return_index=True)
        chosen = candidates[np.sort(first)][:size]
    return np.sort(chosen)


@dataclass(frozen=True)
class Poisson:
    """Every example takes part in every step independently with probability q = batch_size / examples.

    Args:
        batch_size: expected number of examples in a step, > 0 and at most the number of examples. The number really drawn
            varies around it and stays private.

    Guarantee:
        Inclusion is independent over examples and steps, which is what amplification by Poisson sampling assumes (covered by
        the accountants "pld", "rdp" and, approximately, "gdp"). Drawing k ~ Binomial(N, q) and then k distinct indices is
        the same distribution as N independent coins.

    Source:
        Abadi et al. 2016; Mironov, Talwar, Zhang 2019, "Rényi Differential Privacy of the Sampled Gaussian Mechanism".

    >>> Poisson(batch_size=512).rate(examples=60_000)
    0.008533333333333334
    """

    batch_size: float

    def __post_init__(self) -> None:
        positive("sampling.batch_size", self.batch_size, "It is the expected number of examples in a step.")

    def rate(self, examples: int) -> float:
        """Return the sampling rate q for a data set of this size.

        Raises:
            InvalidArgumentError: the expected batch is larger than the data set.
        """
        if self.batch_size > examples:
            raise InvalidArgumentError(
                "sampling.batch_size", self.batch_size, f"at most the number of examples, {examples}", "Lower it."
            )
        return self.batch_size / examples

    def draw(self, examples: int, words: Words) -> Indices:
        """Return the sorted indices of one step's examples; often not `batch_size` of them, possibly none."""
        uniform = float(words(1)[0] >> np.uint64(11)) * 2.0**-53
        return distinct(binomial(examples, self.rate(examples), uniform), examples, words)


SCHEMES: dict[str, type[Poisson]] = {"Poisson": Poisson}
