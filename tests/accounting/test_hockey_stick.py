import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privet.accounting import hockey_stick

LOSSES = np.arange(-40, 200) * 0.031


@given(seed=st.integers(0, 10**6), epsilon=st.floats(0.0, 5.5), infinite=st.sampled_from([0.0, 1e-12, 1e-3]))
def test_epsilon_and_delta_are_each_others_inverse(seed, epsilon, infinite):
    masses = np.random.default_rng(seed).dirichlet(np.full(len(LOSSES), 0.2)) * (1 - infinite)
    delta = hockey_stick.delta(LOSSES, masses, infinite, epsilon)
    direct = infinite + sum(mass * max(0.0, 1 - math.exp(epsilon - loss)) for loss, mass in zip(LOSSES, masses, strict=True))
    assert delta == pytest.approx(direct, rel=1e-8)
    assert delta >= direct
    back = hockey_stick.epsilon(LOSSES, masses, infinite, delta)
    assert hockey_stick.delta(LOSSES, masses, infinite, back) <= delta * (1 + 1e-8)
    if delta > infinite * (1 + 1e-6) + 1e-9:
        assert back == pytest.approx(epsilon, rel=1e-5, abs=1e-6)


def test_the_smallest_epsilon_is_zero_and_the_largest_infinite():
    masses = np.full(len(LOSSES), 1 / len(LOSSES))
    assert hockey_stick.epsilon(LOSSES, masses, 0.0, 0.999) == 0.0
    assert hockey_stick.epsilon(LOSSES, masses, 0.1, 0.1) == math.inf
    assert hockey_stick.epsilon(LOSSES, masses, 0.0, 1e-200) == pytest.approx(LOSSES[-1])
    assert hockey_stick.delta(LOSSES, masses, 0.2, 100.0) == 0.2


@pytest.mark.parametrize("scale", [1e3, 1e5])
def test_losses_may_be_far_beyond_the_range_of_exponentials(scale):
    losses = np.arange(-100, 400) * (scale / 400)
    masses = np.exp(-(((losses - scale / 3) / (scale / 10)) ** 2))
    masses /= masses.sum()
    found = hockey_stick.epsilon(losses, masses, 0.0, 1e-3)
    assert hockey_stick.delta(losses, masses, 0.0, found) <= 1e-3 * (1 + 1e-8)
    assert hockey_stick.delta(losses, masses, 0.0, found - 1.0) > 1e-3


@given(seed=st.integers(0, 10**6), infinite=st.sampled_from([0.0, 1e-12, 1e-3]))
def test_many_deltas_are_each_the_single_one(seed, infinite):
    generator = np.random.default_rng(seed)
    masses = generator.dirichlet(np.full(len(LOSSES), 0.2)) * (1 - infinite)
    epsilons = np.sort(np.append(generator.uniform(0, 8, 9), [0.0, 0.031, 0.031, 7.0]))
    found = hockey_stick.deltas(LOSSES, masses, infinite, epsilons)
    single = [hockey_stick.delta(LOSSES, masses, infinite, float(epsilon)) for epsilon in epsilons]
    np.testing.assert_allclose(found, single, rtol=1e-8)


def test_below_the_lowest_loss_nothing_is_known():
    losses = np.arange(10, 20) * 0.1
    found = hockey_stick.deltas(losses, np.full(10, 0.05), 0.0, np.array([0.0, 0.99, 1.0, 1.5]))
    assert found[:2].tolist() == [1.0, 1.0]
    assert found[2] > found[3] > 0
