import math

import pytest
from scipy.special import ndtr

from privet.accounting import Event, LaplaceEvent
from privet.accounting.composition import mechanisms
from privet.accounting.queries import composed_epsilon
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
    assert back == pytest.approx(composed_epsilon([Event(1.0, deviation / sensitivity)], delta=delta), rel=1e-6)


def test_the_textbooks_gaussian_is_larger_and_refuses_what_it_does_not_prove():
    classical = mechanisms.gaussian_deviation_classical(epsilon=0.5, delta=1e-5, sensitivity=2.0)
    assert classical == pytest.approx(2 * math.sqrt(2 * math.log(1.25e5)) / 0.5) == pytest.approx(2 * 9.68961)
    assert classical > mechanisms.gaussian_deviation(epsilon=0.5, delta=1e-5, sensitivity=2.0)
    with pytest.raises(InvalidArgumentError, match=r"^epsilon is 1\.5; .*gaussian_deviation, which holds"):
        mechanisms.gaussian_deviation_classical(epsilon=1.5, delta=1e-5, sensitivity=2.0)


def test_laplace_noise_is_pure_and_costs_what_its_event_does():
    scale = mechanisms.laplace_scale(epsilon=0.7, sensitivity=2.0)
    assert scale == pytest.approx(2 / 0.7)
    for delta in (0.0, 1e-6, 0.1):
        epsilon = mechanisms.laplace_epsilon(scale=0.4, sensitivity=2.0, delta=delta)
        assert mechanisms.laplace_delta(epsilon=epsilon, scale=0.4, sensitivity=2.0) == pytest.approx(delta, abs=1e-15)
        if delta:
            assert composed_epsilon([LaplaceEvent(1.0, 0.4 / 2.0)], delta=delta) == pytest.approx(epsilon, rel=1e-6)
    assert mechanisms.laplace_epsilon(scale=2.0, sensitivity=1.0, delta=0.5) == 0.0


def test_impossible_arguments_are_refused_by_name():
    for name, call in (
        ("epsilon", lambda: mechanisms.laplace_scale(epsilon=0.0, sensitivity=1.0)),
        ("sensitivity", lambda: mechanisms.laplace_scale(epsilon=1.0, sensitivity=-1.0)),
        ("delta", lambda: mechanisms.gaussian_deviation(epsilon=1.0, delta=0.0, sensitivity=1.0)),
        ("epsilon", lambda: mechanisms.laplace_delta(epsilon=-1.0, scale=1.0, sensitivity=1.0)),
        ("delta", lambda: mechanisms.laplace_epsilon(scale=1.0, sensitivity=1.0, delta=1.0)),
        ("deviation", lambda: mechanisms.gaussian_epsilon(deviation=0.0, delta=1e-5, sensitivity=1.0)),
    ):
        with pytest.raises(InvalidArgumentError, match=f"^{name} is"):
            call()
