import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privet.accounting import (
    BallsInBinsEvent,
    EpsilonDeltaEvent,
    Event,
    FixedSizeEvent,
    LaplaceEvent,
    RandomizedResponseEvent,
    TruncatedPoissonEvent,
    rdp,
    zcdp,
)
from privet.accounting.queries import composed_epsilon
from privet.errors import InvalidArgumentError


def test_rho_adds_up_and_ignores_sampling():
    whole, sampled = [Event(1.0, 2.0, 4), Event(1.0, 0.5)], [Event(0.01, 2.0, 4), Event(0.3, 0.5)]
    assert zcdp.rho(whole) == zcdp.rho(sampled) == 4 / 8 + 2.0
    assert zcdp.rho(whole, "replace-one") == 4 * zcdp.rho(whole)
    assert zcdp.rho([FixedSizeEvent(0.1, 2.0)], "replace-one") == 0.5
    assert zcdp.rho([BallsInBinsEvent(2.0, 3, steps=7)]) == 3 / 8
    assert zcdp.rho([EpsilonDeltaEvent(0.5, 0.0, 2)]) == 0.25
    assert zcdp.rho([RandomizedResponseEvent(0.75)], "replace-one") == pytest.approx(math.log(3) ** 2 / 2)
    assert zcdp.rho([LaplaceEvent(1.0, 2.0)]) == pytest.approx(1 / 8)
    assert zcdp.rho([LaplaceEvent(0.1, 2.0)]) == pytest.approx(math.log1p(0.1 * math.expm1(0.5)) ** 2 / 2)
    assert zcdp.rho([]) == 0.0


@pytest.mark.parametrize(("events", "adjacency"), [
    ([Event(0.1, 1.3, 5)], "add-remove"), ([Event(0.1, 1.3, 5)], "replace-one"), ([FixedSizeEvent(0.2, 3.0)], "replace-one"),
    ([LaplaceEvent(1.0, 0.7, 2)], "add-remove"), ([EpsilonDeltaEvent(1.5)], "add-remove"),
    ([RandomizedResponseEvent(0.6, 5)], "replace-one"),
])  # fmt: skip
def test_rho_bounds_the_divergence_of_every_order(events, adjacency):
    curve = rdp.curve(events, adjacency)
    assert (curve[curve < math.inf] <= zcdp.rho(events, adjacency) * rdp.ORDERS[curve < math.inf] * (1 + 1e-9) + 1e-9).all()


def test_what_has_no_rho_is_infinite_or_refused():
    assert zcdp.rho([Event(1.0, 0.0)]) == zcdp.rho([EpsilonDeltaEvent(1.0, 1e-9)]) == math.inf
    with pytest.raises(InvalidArgumentError, match=r"^events is"):
        zcdp.rho([TruncatedPoissonEvent(0.1, 1.0, examples=100, largest_batch=20)])
    with pytest.raises(InvalidArgumentError, match=r"^adjacency is"):
        zcdp.rho([FixedSizeEvent(0.1, 1.0)])


@settings(max_examples=40)
@given(st.floats(-8, 4), st.floats(-30, -0.3))
def test_epsilon_and_delta_answer_each_other(log_rho, log_delta):
    rho, delta = 10**log_rho, 10**log_delta
    epsilon = zcdp.epsilon_of(rho, delta)
    assert epsilon <= rho + 2 * math.sqrt(rho * math.log(1 / delta)) + 1e-9  # Bun and Steinke's conversion is weaker
    assert zcdp.delta_of(rho, epsilon) <= delta * (1 + 1e-6) or epsilon == 0
    if epsilon > 1e-6:
        assert zcdp.delta_of(rho, epsilon * 0.999) > delta


@pytest.mark.parametrize(("sigma", "steps"), [(1.0, 1), (30.0, 200), (0.3, 2)])
def test_epsilon_is_that_of_the_best_order_and_above_the_exact_one(sigma, steps):
    events = [Event(1.0, sigma, steps)]
    found = zcdp.epsilon_of(zcdp.rho(events), 1e-5)
    assert found == pytest.approx(composed_epsilon(events, delta=1e-5, accountant="rdp"), rel=1e-3)
    assert found > composed_epsilon(events, delta=1e-5)


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 40.0])
def test_noise_for_a_target_meets_it(epsilon):
    rho = zcdp.largest_rho(epsilon, 1e-6)
    assert epsilon * (1 - 1e-6) < zcdp.epsilon_of(rho, 1e-6) <= epsilon
    for adjacency in ("add-remove", "replace-one"):
        sigma = zcdp.noise_multiplier(rho, 50, adjacency)
        assert zcdp.rho([Event(1.0, sigma, 50)], adjacency) == pytest.approx(rho)
        assert composed_epsilon([Event(1.0, sigma, 50)], delta=1e-6, adjacency=adjacency) <= epsilon
