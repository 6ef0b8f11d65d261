"""NOISE: correct noise passes as often as it should, however its numbers are grouped."""

import numpy as np
import pytest

from privet.audit._mechanism import noise
from privet.audit.checks import correlation_p_value, count_p_value, two_sided_p_value, variance_p_value
from privet.audit.observations import Noise

PARTS = {"a": slice(0, 30), "b": slice(30, 50)}


def seen(values, due=None):
    return Noise(values, np.ones(values.shape, dtype=bool) if due is None else due, PARTS, drawn=np.arange(len(values)) % 7.0)


@pytest.mark.parametrize("masked", [False, True])
def test_p_values_of_correct_noise_are_uniform(masked):
    generator, found = np.random.default_rng(), []
    for _ in range(100):
        due = generator.random((60, 50)) < (0.6 if masked else 2.0)
        values = np.where(due, generator.standard_normal((60, 50)), 0.0)
        found.append([check.p_value for check in noise.checks(seen(values, due))])
    # More than a thousand p-values, each below 1e-9 with that probability; Bonferroni's are larger than uniform, never smaller.
    assert np.min(found) > 1e-9
    assert (np.array(found) < 0.01).mean() < 0.03


def test_released_masked_coordinates_are_detected():
    due = np.ones((60, 50), dtype=bool)
    due[:, 3] = False
    values = np.where(due, np.random.default_rng().standard_normal(due.shape), 0.0)
    leaking = Noise(values, due, PARTS, silent=0.01)
    assert {check.name for check in noise.checks(leaking) if check.p_value == 0.0} == {"masked coordinates"}


def test_five_percent_less_noise_on_one_parameter_is_detected():
    values = np.random.default_rng().standard_normal((4000, 50))
    values[:, 30:] *= 0.95
    assert min(check.p_value for check in noise.checks(seen(values)) if check.name == "noise of every parameter") < 1e-9


def test_p_values_match_their_distributions():
    assert two_sided_p_value(0.0) == 1.0
    assert two_sided_p_value(np.inf) == two_sided_p_value(np.nan) == 0.0
    assert two_sided_p_value(-1.96) == pytest.approx(0.05, abs=1e-4)
    assert variance_p_value(100.0, 100) > 0.9
    assert variance_p_value(0.0, 100) == variance_p_value(np.inf, 100) == 0.0
    assert count_p_value(7, 7.0) > 0.5
    assert count_p_value(0, 100.0) < 1e-40
    assert count_p_value(2000, 1500.0) < 1e-30
    assert count_p_value(3, 3.0, variance=0) == 1.0
    assert count_p_value(4, 3.0, variance=0) == 0.0
    assert correlation_p_value(np.zeros(5), np.ones(5)) == 1.0
