"""Closed forms of single releases against their definitions in sixty digits, in both directions between neighbours."""

import math
import random
from dataclasses import replace

import mpmath as mp
import pytest

from exact_deltas import adding, removing, replacing
from privet.accounting import EpsilonDeltaEvent, Event, FixedSizeEvent, LaplaceEvent, RandomizedResponseEvent
from privet.accounting.queries import composed_delta, composed_deltas, composed_epsilon


def of_fixed_size(q, sigma, epsilon):
    return max(removing(q, sigma / 2, epsilon), adding(q, sigma / 2, epsilon))


CASES = {
    "add-remove": (Event, "add-remove", lambda *given: max(removing(*given), adding(*given))),
    "replace-one": (Event, "replace-one", replacing),
    "fixed size": (FixedSizeEvent, "replace-one", of_fixed_size),
}


@pytest.mark.parametrize(("kind", "adjacency", "exact"), CASES.values(), ids=CASES)
def test_gaussian_releases_are_exact_at_any_delta(kind, adjacency, exact):
    for _ in range(60):
        q, sigma, delta = 10 ** random.uniform(-6, 0), 10 ** random.uniform(-0.7, 2), 10 ** random.uniform(-20, -1)
        found = composed_epsilon([kind(q, sigma)], delta=delta, adjacency=adjacency)
        assert exact(q, sigma, found) <= delta * (1 + 1e-9), (q, sigma, delta)
        if found > 0:
            # Answers have ten digits; or, where delta hardly depends on epsilon, as many as float64 leaves of it.
            assert exact(q, sigma, mp.mpf(found) * (1 - mp.mpf(10) ** -8)) > delta * (1 - 1e-6), (q, sigma, delta)
            back = composed_delta([kind(q, sigma)], epsilon=found, adjacency=adjacency)
            assert back == pytest.approx(float(exact(q, sigma, found)), rel=1e-6)


def test_a_release_without_sampling_is_the_gaussian():
    for adjacency, sensitivity in (("add-remove", 1.0), ("replace-one", 2.0)):
        one = composed_epsilon([Event(1.0, 3.0)], delta=1e-6, adjacency=adjacency)
        four = composed_epsilon([Event(1.0, 6.0, 4)], delta=1e-6, adjacency=adjacency)
        assert one == pytest.approx(four, rel=1e-9)
        nearly = composed_epsilon([Event(1 - 1e-9, 3.0)], delta=1e-6, adjacency=adjacency)
        assert nearly == pytest.approx(one, rel=1e-6)
        assert one == composed_epsilon([Event(1.0, 3.0 / sensitivity)], delta=1e-6, adjacency="add-remove")


def laplace(q, scale, epsilon, sensitivity=1):
    """Return the divergence of removing, or of adding, by integration."""
    r, e = mp.mpf(sensitivity) / scale, mp.exp(epsilon)

    def none(x):
        return mp.exp(-abs(x) / scale) / (2 * scale)

    def mixed(x):
        return (1 - q) * none(x) + q * none(x - sensitivity)

    ends = [-60 * scale, 0, mp.mpf(sensitivity) / 2, sensitivity, sensitivity + 60 * scale]
    inner = 1 + (e - 1) / q
    turns = [scale * (mp.log(value) + r) / 2 for value in (inner, 1 - (1 - 1 / e) / q) if value > 0]
    places = sorted([*ends, *(turn for turn in turns if ends[0] < turn < ends[-1])])
    return max(
        mp.quad(lambda x: max(mp.mpf(0), mixed(x) - e * none(x)), places),
        mp.quad(lambda x: max(mp.mpf(0), none(x) - e * mixed(x)), places),
    )


@pytest.mark.parametrize(("q", "scale"), [(1.0, 0.5), (1.0, 8.0), (0.2, 1.3), (0.01, 0.4)])
def test_laplace_noise_is_exact(q, scale):
    for delta in (1e-6, 1e-3, 0.02):
        found = composed_epsilon([LaplaceEvent(q, scale)], delta=delta)
        if found > 0:
            assert float(laplace(mp.mpf(q), mp.mpf(scale), mp.mpf(found))) == pytest.approx(delta, rel=1e-4)
            assert composed_delta([LaplaceEvent(q, scale)], epsilon=found) == pytest.approx(delta, rel=1e-4)


def test_replacing_under_laplace_noise_moves_a_number_by_twice_the_bound():
    twice = composed_epsilon([LaplaceEvent(1.0, 3.0)], delta=1e-3, adjacency="replace-one")
    assert twice == pytest.approx(composed_epsilon([LaplaceEvent(1.0, 1.5)], delta=1e-3), rel=1e-9)


@pytest.mark.parametrize(("truthful", "answers"), [(0.75, 2), (0.9, 10), (0.25, 4)])
def test_randomized_response_is_exact(truthful, answers):
    event, other = RandomizedResponseEvent(truthful, answers), (1 - truthful) / (answers - 1)
    for epsilon in (0.0, 0.3, 2.0):
        exact = max(0.0, truthful - math.exp(epsilon) * other)
        found = composed_deltas([event], epsilons=[epsilon], likely=1e-5, adjacency="replace-one")[0]
        assert found == pytest.approx(exact, abs=1e-12)
        if exact > 0:
            assert composed_epsilon([event], delta=exact, adjacency="replace-one") == pytest.approx(epsilon, abs=1e-9)
    assert composed_epsilon([event], delta=1e-300, adjacency="replace-one") == pytest.approx(event.epsilon, rel=1e-9, abs=1e-9)


def test_an_epsilon_delta_release_has_its_epsilon_at_its_delta():
    event = EpsilonDeltaEvent(0.7, 1e-4)
    assert composed_epsilon([event], delta=1e-4) == pytest.approx(0.7, rel=1e-9)
    assert composed_epsilon([event], delta=0.99e-4) == math.inf
    assert composed_delta([event], epsilon=0.7) == pytest.approx(1e-4)
    # The divergence at ε = 0 of randomised response that reveals with probability δ.
    assert composed_delta([event], epsilon=0.0) == pytest.approx(1e-4 + (1 - 1e-4) * math.tanh(0.35))


def test_a_single_release_is_not_above_its_composition():
    for event in (Event(0.02, 0.8), LaplaceEvent(0.1, 2.0), EpsilonDeltaEvent(0.5)):
        one, two = (composed_epsilon([replace(event, count=number)], delta=1e-6) for number in (1, 2))
        assert one < two
