import math

import numpy as np
import pytest
from scipy import stats

from privet.noise import Keystream
from privet.sampling import Poisson


@pytest.mark.parametrize("batch_size", [3.7, 33.0])
def test_inclusion_is_an_independent_coin_for_every_example_and_step(batch_size, holds_twice):
    examples, steps = 40, 6000
    q, stream = batch_size / examples, Keystream()

    def pairs(table):
        """Return the p-value of the z-scores of all products of different columns being standard normal in square sum."""
        centred = (table - q) / math.sqrt(q * (1 - q))
        products = centred.T @ centred / math.sqrt(steps)
        upper = products[np.triu_indices(examples, 1)]
        return stats.norm.sf(abs((upper**2).sum() - len(upper)) / math.sqrt(2.2 * len(upper))) * 2

    def experiment():
        table = np.zeros((steps, examples))
        for row, drawn in zip(table, Poisson(batch_size).draws(examples, stream.words), strict=False):
            row[drawn] = 1
        z = (table.mean(0) - q) / math.sqrt(q * (1 - q) / steps)
        centred = (table - q) / math.sqrt(q * (1 - q))
        lag = (centred[1:] * centred[:-1]).sum() / math.sqrt((steps - 1) * examples)
        far = (centred[1:] @ centred[:-1].T).trace() / math.sqrt((steps - 1) * examples)
        shifted = (centred[1:, 1:] * centred[:-1, :-1]).sum() / math.sqrt((steps - 1) * (examples - 1))
        sizes = table.sum(1)
        spread = sizes.var() / (examples * q * (1 - q))
        kurtosis = stats.binom.stats(examples, q, moments="k")
        return {
            "frequency of every example": stats.chi2.sf((z**2).sum(), examples),
            "mean size": 2 * stats.norm.sf(abs(sizes.mean() - batch_size) / math.sqrt(examples * q * (1 - q) / steps)),
            "variance of the size": 2 * stats.norm.sf(abs(spread - 1) / math.sqrt((2 + float(kurtosis)) / steps)),
            "pairs of examples": pairs(table),
            "one example over steps": 2 * stats.norm.sf(abs(lag)),
            "steps": 2 * stats.norm.sf(abs(far)),
            "neighbours over steps": 2 * stats.norm.sf(abs(shifted)),
        }

    holds_twice(experiment)


def test_tiny_rates_give_empty_draws(holds_twice):
    examples, stream = 1000, Keystream()

    def experiment():
        sizes = np.array([len(next(Poisson(0.05).draws(examples, stream.words))) for _ in range(4000)])
        return {"empty": stats.binomtest(int((sizes == 0).sum()), len(sizes), (1 - 5e-5) ** examples).pvalue}

    holds_twice(experiment)


def test_the_first_word_decides_the_size():
    def words(first):
        stream = iter([np.array([first], dtype=np.uint64)])
        rest = Keystream()
        return lambda size: next(stream, None) if size == 1 else rest.words(size)

    median = stats.binom.ppf(0.5, 100, 0.12)
    assert len(next(Poisson(12).draws(100, words(2**63)))) == median
    assert len(next(Poisson(12).draws(100, words(0)))) == 0
    assert len(next(Poisson(12).draws(100, words(2**64 - 1)))) > 40
