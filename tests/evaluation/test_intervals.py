import numpy as np
import pytest
from scipy.stats import binomtest

from privet.errors import InvalidArgumentError
from privet.evaluation import bootstrap_interval, equal_width, tabulate, wilson_interval


def test_interval_of_a_mean_is_close_to_the_normal_interval():
    values = np.random.default_rng(0).normal(3.0, 2.0, 2000)
    low, high = bootstrap_interval(np.mean, values)
    half = 1.96 * values.std() / np.sqrt(2000)
    assert (low, high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.2 * half)


def test_rows_of_several_columns_stay_together():
    values = np.random.default_rng(1).normal(size=300)
    low, high = bootstrap_interval(lambda one, other: np.corrcoef(one, other)[0, 1], values, 5 * values, resamples=50)
    assert (low, high) == pytest.approx((1.0, 1.0))


def test_each_of_several_statistics_has_an_interval():
    values = np.random.default_rng(2).normal(size=100)
    low, high = bootstrap_interval(lambda some: (some.mean(), some.max()), values, resamples=100, confidence=0.8)
    assert low.shape == high.shape == (2,)
    assert low[0] == bootstrap_interval(np.mean, values, resamples=100, confidence=0.8)[0]


def test_bias_of_the_calibration_error_is_corrected():
    # A calibrated model: the true error is 0 and the estimate is above it; the interval must reach it.
    generator = np.random.default_rng(3)
    confidence = generator.uniform(0.5, 1, 500)
    hits = generator.random(500) < confidence

    def error(claimed, came):
        return tabulate(claimed, came, equal_width(15)).expected_error

    assert error(confidence, hits) > 0.02
    assert bootstrap_interval(error, confidence, hits, resamples=200)[0] <= 0.005


@pytest.mark.parametrize(
    ("columns", "options"), [([[]], {}), ([[1.0], [1.0, 2.0]], {}), ([[1.0]], {"resamples": 1}), ([[1.0]], {"confidence": 1.0})]
)
def test_arguments_outside_their_range_are_refused(columns, options):
    with pytest.raises(InvalidArgumentError):
        bootstrap_interval(np.mean, *columns, **options)


@pytest.mark.parametrize(("share", "examples", "confidence"), [(-0.1, 5, 0.95), (1.1, 5, 0.95), (0.5, 0, 0.95), (0.5, 5, 1.0)])
def test_proportions_outside_their_range_are_refused(share, examples, confidence):
    with pytest.raises(InvalidArgumentError):
        wilson_interval(share, examples, confidence)


@pytest.mark.parametrize(
    ("share", "examples", "confidence"), [(0.0, 1, 0.8), (0.3, 7, 0.95), (1.0, 50, 0.999), (0.3, 10_000, 0.8)]
)
def test_wilsons_interval_matches_scipy(share, examples, confidence):
    successes = round(share * examples)
    known = binomtest(successes, examples).proportion_ci(confidence, method="wilson")
    assert wilson_interval(successes / examples, examples, confidence) == pytest.approx(tuple(known), abs=1e-12)
