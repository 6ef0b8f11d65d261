"""Bands show how far runs are from each other, and nothing that no run showed."""

import math

import pytest

from privet_experiments.reproduction.charts import _band


def test_a_band_is_a_standard_deviation_on_either_side():
    mean, low, high = _band([0.0, 4.0, 5.0, 6.0, 10.0])
    assert mean == 5.0
    assert high - mean == pytest.approx(mean - low) == pytest.approx(math.sqrt(13))


def test_a_run_that_leaps_takes_the_band_no_further_than_any_run_went():
    mean, low, high = _band([0.1, 0.1, 0.1, 0.1, 8.0])
    assert (low, mean) == (0.1, pytest.approx(1.68))
    assert mean < high < 8.0


def test_one_run_has_no_band():
    assert _band([0.25]) == (0.25, 0.25, 0.25)


def test_what_is_not_finite_leaves_a_gap():
    assert all(map(math.isnan, _band([1.0, math.nan, 2.0])))
