from collections import Counter
from itertools import combinations, permutations

import numpy as np
import pytest
from scipy import stats

from privet.noise import Keystream
from privet.sampling import below, binomial, distinct, permutation


@pytest.mark.parametrize("trials", [1, 37, 60_000, 10**8])
@pytest.mark.parametrize("probability", [1e-7, 0.0085, 0.5, 0.97, 1.0])
def test_binomial_inverts_the_distribution_function(trials, probability):
    uniforms = np.concatenate([np.linspace(0.0005, 0.9995, 210), np.logspace(-9.1, -4.1, 11), 1 - np.logspace(-9.1, -4.1, 11)])
    drawn = [binomial(trials, probability, float(uniform)) for uniform in uniforms]
    np.testing.assert_array_equal(drawn, stats.binom.ppf(uniforms, trials, probability))


@pytest.mark.parametrize(("trials", "probability"), [(1, 0.3), (50, 0.02), (10**8, 1e-7), (60_000, 0.0085), (1000, 1 - 1e-12)])
def test_binomial_stays_in_range_at_the_ends_of_the_uniform(trials, probability):
    lowest, highest = binomial(trials, probability, 0.0), binomial(trials, probability, 1 - 2.0**-53)
    assert 0 <= lowest <= trials * probability <= highest <= trials
    assert stats.binom.cdf(lowest, trials, probability) > 0
    assert stats.binom.sf(highest, trials, probability) < 1e-14


@pytest.mark.parametrize(("size", "population"), [(0, 6), (1, 6), (2, 6), (3, 6), (4, 6), (5, 6), (6, 6), (2, 8), (3, 7), (1, 1)])
def test_every_subset_is_equally_likely(size, population, holds_twice):
    stream, subsets = Keystream(), list(combinations(range(population), size))

    def experiment():
        found = Counter(tuple(distinct(size, population, stream.words).tolist()) for _ in range(3000))
        assert set(found) <= set(subsets)
        return {"subsets": stats.chisquare([found[subset] for subset in subsets]).pvalue if len(subsets) > 1 else 1.0}

    holds_twice(experiment)


@pytest.mark.parametrize("bound", [1, 2, 3, 7, 10, 1000])
def test_numbers_below_a_bound_are_uniform_and_independent(bound, holds_twice):
    stream, pairs = Keystream(), min(bound, 10)

    def experiment():
        drawn = below(bound, 40 * max(bound, 100), stream.words)
        assert drawn.dtype == np.int64
        assert drawn.min() >= 0
        assert drawn.max() < bound
        both = np.bincount(pairs * (drawn[0::2] % pairs) + drawn[1::2] % pairs, minlength=pairs**2)
        return {
            "each": stats.chisquare(np.bincount(drawn, minlength=bound)).pvalue if bound > 1 else 1.0,
            "pairs": stats.chisquare(both).pvalue if bound in (2, 3, 7, 10) else 1.0,
        }

    holds_twice(experiment)


@pytest.mark.parametrize("size", [0, 1, 2, 3, 4])
def test_every_order_is_equally_likely(size, holds_twice):
    stream, orders = Keystream(), list(permutations(range(size)))

    def experiment():
        found = Counter(tuple(permutation(size, stream.words).tolist()) for _ in range(200 * len(orders)))
        assert set(found) <= set(orders)
        return {"orders": stats.chisquare([found[order] for order in orders]).pvalue if len(orders) > 1 else 1.0}

    holds_twice(experiment)


def given(*batches):
    """Return a source of words that hands out these."""
    words = iter([np.array(batch, dtype=np.uint64) for batch in batches])
    return lambda size: next(words)


def test_words_that_would_favour_small_numbers_are_drawn_again():
    """Half of all words are beyond the largest multiple of 2⁶³ + 1; candidates and words that repeat are drawn again, too."""
    half = 2**63 + 1
    assert distinct(1, half, given([half, 2**64 - 1, 5], [7])).tolist() == [5]
    assert distinct(3, 10, given([4, 4, 14, 4], [21, 2, 3])).tolist() == [1, 2, 4]
    assert below(half, 3, given([half, 9, 2**64 - 1], [2**62, 2**63 + 5], [11])).tolist() == [9, 2**62, 11]
    assert permutation(3, given([4, 1, 4], [4, 1, 3])).tolist() == [1, 2, 0]
    assert below(5, 0, Keystream().words).tolist() == []
