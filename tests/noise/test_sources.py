import math

import numpy as np
import pytest
import torch
from scipy import stats

from privet.noise import SOURCES, FixedSource, SecureSource, arithmetic, compiled, reference, sources

EVERY = pytest.mark.parametrize("kind", SOURCES.values(), ids=SOURCES)


def correlation(first, second):
    return 2 * stats.norm.sf(abs(float(np.dot(first, second))) / math.sqrt(len(first)))


@pytest.mark.parametrize("form", ["compiled", "torch"])
def test_normals_are_independent_and_standard_normal(form, holds_twice, monkeypatch):
    if form == "torch":
        monkeypatch.setattr(sources, "arithmetic", lambda: compiled.Arithmetic(reference.box_muller, reference.add_noise, form))
    elif not arithmetic().description.startswith(form):
        pytest.skip(f"no kernels here: {arithmetic().description}")
    source, n, block = SecureSource(), 1 << 20, sources.BLOCK

    def experiment():
        x = source.normal(n).numpy()
        # A block of the transform holds the cosines of its pairs, then their sines: same radius, same angle.
        halves = x.reshape(-1, 2, block // 2)
        beyond = {"right": int((x > 4.5).sum()), "left": int((x < -4.5).sum())}
        rare = n * stats.norm.sf(4.5)
        return {
            "distribution": stats.kstest(x, "norm").pvalue,
            "variance": 2 * stats.norm.sf(abs((x**2).sum() - n) / math.sqrt(2 * n)),
            "mean": 2 * stats.norm.sf(abs(x.mean()) * math.sqrt(n)),
            "skewness": 2 * stats.norm.sf(abs((x**3).mean()) / math.sqrt(15 / n)),
            "kurtosis": 2 * stats.norm.sf(abs((x**4).mean() - 3) / math.sqrt(96 / n)),
            "lag 1": correlation(x[1:], x[:-1]),
            "halves": correlation(halves[:, 0].ravel(), halves[:, 1].ravel()),
            "squares of halves": correlation(*((halves[:, i].ravel() ** 2 - 1) / math.sqrt(2) for i in (0, 1))),
            "product with square": correlation(halves[:, 0].ravel(), (halves[:, 1].ravel() ** 2 - 1) / math.sqrt(2)),
            **{
                f"{side} tail": 2 * min(stats.poisson.cdf(k, rare), stats.poisson.sf(k - 1, rare), 0.5)
                for side, k in beyond.items()
            },
            "chi-square of cells": stats.chisquare(np.bincount((stats.norm.cdf(x) * 1024).astype(int), minlength=1024)).pvalue,
        }

    holds_twice(experiment)


@EVERY
@pytest.mark.parametrize("size", [0, 1, 7, 65_536, 65_537, 131_073])
def test_as_many_normals_as_asked_for(kind, size):
    drawn = kind().normal(size)
    assert (drawn.shape, drawn.dtype, drawn.device.type) == ((size,), torch.float64, "cpu")
    assert drawn.isfinite().all()
    assert len(drawn.unique()) == size
    words = kind().words(1000)
    assert (words.dtype, words.shape) == (np.dtype(np.uint64), (1000,))
    assert np.bitwise_or.reduce(words) == 2**64 - 1
    assert np.bitwise_and.reduce(words) == 0


@pytest.mark.parametrize(("kind", "same"), [(SecureSource, False), (FixedSource, True)])
def test_only_the_test_source_repeats_itself_and_no_seed_reaches_the_others(kind, same):
    draws = []
    for _ in range(2):
        torch.manual_seed(0)
        np.random.seed(0)
        source = kind()
        draws.append((source.normal(16).tolist(), source.words(16).tolist()))
        state = torch.get_rng_state()
        assert kind().normal(16).tolist() != draws[-1][0] or same  # sources share nothing
        assert torch.equal(torch.get_rng_state(), state)
    (first_noise, first_words), (second_noise, second_words) = draws
    assert (first_noise == second_noise) is same
    assert (first_words == second_words) is same


def test_the_tiers_say_what_they_are():
    assert {name: kind.private for name, kind in SOURCES.items()} == {"secure": True, "fixed": False}
    assert "AES-256-CTR" in SecureSource.claim
    assert "no privacy" in FixedSource.claim
