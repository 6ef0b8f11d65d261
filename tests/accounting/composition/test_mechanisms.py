import math

import numpy as np
import pytest
from scipy.special import ndtr

from privet.accounting.composition import mechanisms
from privet.errors import InvalidArgumentError


@pytest.mark.parametrize(("epsilon", "delta", "sensitivity"), [(0.3, 1e-5, 2.0), (1.0, 1e-6, 0.4), (8.0, 1e-3, 3.0)])
def test_the_analytic_gaussian_is_enough_and_no_more(epsilon, delta, sensitivity):
    deviation = mechanisms.gaussian_deviation(epsilon=epsilon, delta=delta, sensitivity=sensitivity)

    def spent(noise):
        mu = sensitivity / noise
        return ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu)

    assert spent(deviation) <= delta * (1 + 1e-9) < spent(deviation * (1 - 1e-4)) * (1 + 1e-9)
    back = mechanisms.gaussian_epsilon(deviation=deviation, delta=delta, sensitivity=sensitivity)
    assert epsilon * (1 - 1e-4) <= back <= epsilon


def test_the_textbooks_gaussian_is_larger_and_refuses_what_it_does_not_prove():
    classical = mechanisms.gaussian_deviation_classical(epsilon=0.5, delta=1e-5, sensitivity=2.0)
    assert classical == pytest.approx(2 * math.sqrt(2 * math.log(1.25e5)) / 0.5)
    assert classical > mechanisms.gaussian_deviation(epsilon=0.5, delta=1e-5, sensitivity=2.0)
    with pytest.raises(InvalidArgumentError, match=r"^epsilon is 1\.5; .*gaussian_deviation, which holds"):
        mechanisms.gaussian_deviation_classical(epsilon=1.5, delta=1e-5, sensitivity=2.0)


def test_laplace_is_pure_and_its_delta_the_integral():
    scale = mechanisms.laplace_scale(epsilon=0.7, sensitivity=2.0)
    assert scale == pytest.approx(2 / 0.7)
    assert mechanisms.laplace_delta(epsilon=0.7, scale=scale, sensitivity=2.0) == 0.0
    x = np.linspace(-80, 80, 800_001)
    for epsilon in (0.0, 0.3, 0.6):
        gap = np.maximum(0.0, np.exp(-np.abs(x - 2) / scale) - math.exp(epsilon) * np.exp(-np.abs(x) / scale)) / (2 * scale)
        found = mechanisms.laplace_delta(epsilon=epsilon, scale=scale, sensitivity=2.0)
        assert found == pytest.approx(float(gap.sum() * (x[1] - x[0])), rel=1e-4)


def test_laplace_epsilon_and_delta_are_each_others_inverse():
    assert mechanisms.laplace_epsilon(scale=2.5, sensitivity=2.0) == pytest.approx(0.8)
    for delta in (0.0, 1e-6, 0.1):
        epsilon = mechanisms.laplace_epsilon(scale=0.4, sensitivity=2.0, delta=delta)
        assert mechanisms.laplace_delta(epsilon=epsilon, scale=0.4, sensitivity=2.0) == pytest.approx(delta, abs=1e-15)
    assert mechanisms.laplace_epsilon(scale=2.0, sensitivity=1.0, delta=0.5) == 0.0


def test_published_values():
    """Dwork and Roth's √(2 ln 1.25/δ)/ε, and the ε of one Gaussian release when an example is removed or replaced."""
    assert mechanisms.gaussian_deviation_classical(epsilon=0.5, delta=1e-5, sensitivity=1.0) == pytest.approx(9.68961, abs=1e-5)
    assert mechanisms.gaussian_epsilon(deviation=0.7, delta=1e-5, sensitivity=0.7) == pytest.approx(4.37718, abs=1e-5)
    assert mechanisms.gaussian_epsilon(deviation=0.7, delta=1e-5, sensitivity=1.4) == pytest.approx(9.99726, abs=1e-5)
    assert mechanisms.gaussian_deviation(epsilon=1.0, delta=1e-5, sensitivity=0.3) == pytest.approx(0.3 * 3.7306, rel=1e-4)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: mechanisms.laplace_scale(epsilon=0.0, sensitivity=1.0), "epsilon"),
        (lambda: mechanisms.laplace_scale(epsilon=1.0, sensitivity=-1.0), "sensitivity"),
        (lambda: mechanisms.laplace_delta(epsilon=-1.0, scale=1.0, sensitivity=1.0), "epsilon"),
        (lambda: mechanisms.laplace_epsilon(scale=1.0, sensitivity=1.0, delta=1.0), "delta"),
        (lambda: mechanisms.gaussian_deviation(epsilon=1.0, delta=0.0, sensitivity=1.0), "delta"),
        (lambda: mechanisms.gaussian_epsilon(deviation=0.0, delta=1e-5, sensitivity=1.0), "deviation"),
    ],
)
def test_impossible_arguments_are_refused_by_name(call, name):
    with pytest.raises(InvalidArgumentError, match=f"^{name} is"):
        call()
