"""The Wilson interval has known values, valid ends and nominal coverage."""

from __future__ import annotations

import pytest
from scipy.stats import binom, binomtest

from privet.errors import InvalidArgumentError
from privet.evaluation import wilson_interval


@pytest.mark.parametrize("examples", [1, 7, 50, 10_000])
@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.999])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_interval_matches_scipy(share, examples, confidence):
    successes = round(share * examples)
    known = binomtest(successes, examples).proportion_ci(confidence, method="wilson")
    assert wilson_interval(successes / examples, examples, confidence) == pytest.approx(tuple(known), abs=1e-12)


def test_interval_has_the_published_value():
    # Newcombe, "Two-sided confidence intervals for the single proportion", 1998, table I: 81 of 263.
    assert wilson_interval(81 / 263, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)


@pytest.mark.parametrize("share", [0.5, 0.9, 0.98])
def test_interval_has_nominal_coverage(share):
    n = 400
    covered = sum(
        binom.pmf(k, n, share) for k in range(n + 1) if wilson_interval(k / n, n)[0] <= share <= wilson_interval(k / n, n)[1]
    )
    assert covered == pytest.approx(0.95, abs=0.02)


@pytest.mark.parametrize(("share", "examples", "confidence"), [(-0.1, 5, 0.95), (1.1, 5, 0.95), (0.5, 0, 0.95), (0.5, 5, 1.0)])
def test_arguments_outside_their_range_are_refused(share, examples, confidence):
    with pytest.raises(InvalidArgumentError):
        wilson_interval(share, examples, confidence)
