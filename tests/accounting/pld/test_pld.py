import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from privet.accounting import Event, epsilon
from privet.accounting.queries import composed_delta, composed_epsilon

RELATIONS = {
    "add-remove": dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE,
    "replace-one": dp_accounting.NeighboringRelation.REPLACE_ONE,
    "zero-out": dp_accounting.NeighboringRelation.REPLACE_SPECIAL,
}


def ask(q, sigma, steps, delta, adjacency="add-remove"):
    return epsilon(sampling_rate=q, noise_multiplier=sigma, steps=steps, delta=delta, adjacency=adjacency)


def theirs(q, sigma, steps, delta, adjacency="add-remove", width=1e-3, pessimistic=True):
    one = privacy_loss_distribution.from_gaussian_mechanism(
        standard_deviation=sigma, value_discretization_interval=width, pessimistic_estimate=pessimistic,
        use_connect_dots=pessimistic, sampling_prob=q, neighboring_relation=RELATIONS[adjacency],
    )  # fmt: skip
    return one.self_compose(steps).get_epsilon_for_delta(delta)


@pytest.mark.parametrize(("delta", "truth"), [(1e-5, 6.18771), (1e-9, 8.7654), (1e-12, 10.3467), (1e-20, 13.8798)])
def test_small_deltas_are_the_truth_from_above(delta, truth):
    assert truth * (1 - 1e-5) <= ask(0.01, 1.0, 10_000, delta) <= truth * (1 + 1e-3)


@pytest.mark.parametrize("delta", [1e-30, 1e-60, 1e-120, 1e-250])
def test_there_is_no_smallest_delta(delta):
    setting = {"sampling_rate": 0.01, "noise_multiplier": 1.0, "steps": 10_000, "delta": delta}
    by_rdp = epsilon(**setting, accountant="rdp")
    assert by_rdp * 0.8 < epsilon(**setting) <= by_rdp


@settings(max_examples=8)
@given(
    q=st.floats(2e-3, 0.9), sigma=st.floats(0.6, 4.0), steps=st.integers(1, 300), exponent=st.floats(-7.5, -2),
    adjacency=st.sampled_from(list(RELATIONS)),
)  # fmt: skip
def test_dp_accounting_agrees_from_both_sides(q, sigma, steps, exponent, adjacency):
    setting = (q, sigma, steps, 10**exponent, adjacency)
    width = 5e-4 if sigma > 1.5 else 2e-3
    ours, above = ask(*setting), theirs(*setting, width=width)
    assert theirs(*setting, width=width, pessimistic=False) * (1 - 1e-6) - 1e-9 <= ours
    assert ours <= above * (1 + 1e-3) + 1e-6


def test_schedules_with_a_thousand_multipliers():
    sigmas = np.geomspace(0.8, 1.6, 1000)
    found = composed_epsilon([Event(0.01, float(sigma), 10) for sigma in sigmas], delta=1e-5)
    assert 5.7225 * (1 - 1e-4) <= found <= 5.7225 * (1 + 1e-3)


@pytest.mark.parametrize(
    ("adjacency", "q", "sigma", "steps", "at"),
    [("add-remove", 0.05, 0.8, 20, 0.7), ("zero-out", 0.3, 2.0, 5, 0.5), ("replace-one", 0.3, 2.0, 5, 0.5),
     ("replace-one", 0.01, 1.2, 60, 0.05)],
)  # fmt: skip
def test_delta_covers_simulated_losses(adjacency, q, sigma, steps, at):
    """δ(ε) is E[(1 − e^{ε − L})₊] over losses of the pair; they are drawn here from their definition."""
    number, generator = 200_000, np.random.default_rng()
    far = -1.0 if adjacency == "replace-one" else None

    def densities(x, centre):
        return np.log((1 - q) * np.exp(-(x**2) / 2 / sigma**2) + q * np.exp(-((x - centre) ** 2) / 2 / sigma**2))

    total = {"remove": np.zeros(number), "add": np.zeros(number)}
    for _ in range(steps):
        noise = sigma * generator.standard_normal(number)
        sampled = noise + (generator.random(number) < q)
        other = densities(sampled, far) if far else -(sampled**2) / 2 / sigma**2
        total["remove"] += densities(sampled, 1.0) - other
        total["add"] += -(noise**2) / 2 / sigma**2 - densities(noise, 1.0)
    ways = ["remove"] if far else ["remove", "add"]
    gains = [np.maximum(0.0, -np.expm1(at - total[way])) for way in ways]
    highest = max(gain.mean() + 5.5 * gain.std() / math.sqrt(number) for gain in gains)
    lowest = max(gain.mean() - 5.5 * gain.std() / math.sqrt(number) for gain in gains)
    found = composed_delta([Event(q, sigma, steps)], epsilon=at, adjacency=adjacency)
    assert lowest <= found <= highest * (1 + 1e-2)


@settings(max_examples=25)
@given(q=st.floats(1e-3, 1.0), sigma=st.floats(0.5, 10.0), steps=st.integers(1, 500), exponent=st.floats(-9, -1.5))
def test_delta_and_epsilon_answer_each_other(q, sigma, steps, exponent):
    events = [Event(q, sigma, steps)]
    spent = composed_epsilon(events, delta=10**exponent)
    # δ falls the more steeply the smaller ε is, so both are compared as ε.
    if spent > 1e-3:
        back = composed_epsilon(events, delta=composed_delta(events, epsilon=spent))
        assert back == pytest.approx(spent, rel=0.05, abs=2e-3)


@settings(max_examples=20)
@given(q=st.floats(1e-7, 1.0), sigma=st.floats(0.2, 1e4), steps=st.integers(1, 10**5), exponent=st.floats(-20, -3))
def test_every_corner_has_an_answer_below_rdp(q, sigma, steps, exponent):
    setting = {"sampling_rate": q, "noise_multiplier": sigma, "steps": steps, "delta": 10**exponent}
    found = epsilon(**setting)
    assert 0 <= found <= epsilon(**setting, accountant="rdp") * (1 + 1e-3) + 1e-6
    # Below a millionth, answers are bounds but no longer tight.
    one = {**setting, "steps": 1}
    assert found >= epsilon(**one) * (1 - 2e-3) - 1e-6


def test_rates_so_small_that_rdp_proves_nothing_useful():
    assert ask(1e-5, 1.0, 10**5, 1e-5) == pytest.approx(0.0103, rel=0.02)
    assert 0.02 < ask(1e-6, 0.6, 10**6, 1e-8) < 0.04


@pytest.mark.parametrize("sigma", [0.02, 0.05, 0.2])
def test_nearly_no_noise_costs_as_often_as_the_example_is_hit(sigma):
    """With hardly any noise, ε is about that of a full-batch Gaussian for as many steps as it is hit but for δ."""
    q, steps, delta = 0.1, 6, 1e-3
    hits = int(binom.isf(delta, steps, q))
    below = epsilon(sampling_rate=1.0, noise_multiplier=sigma, steps=hits, delta=0.5)
    above = epsilon(sampling_rate=1.0, noise_multiplier=sigma, steps=hits + 1, delta=delta)
    assert below * 0.8 - 30 <= ask(q, sigma, steps, delta) <= above


@pytest.mark.parametrize(("q", "sigma", "steps"), [(0.1, 0.5, 10_000), (0.02, 0.5, 50_000), (0.5, 0.7, 2_000)])
def test_huge_epsilons_are_close_to_rdp_and_below(q, sigma, steps):
    found = ask(q, sigma, steps, 1e-5)
    assert found > 50
    by_rdp = epsilon(sampling_rate=q, noise_multiplier=sigma, steps=steps, delta=1e-5, accountant="rdp")
    assert by_rdp * 0.9 < found <= by_rdp


def test_delta_has_its_edges():
    assert composed_delta([], epsilon=0.0) == 0.0
    assert composed_delta([Event(0.1, 0.0)], epsilon=3.0) == 1.0
    assert composed_delta([Event(0.1, 1.0, 5)], epsilon=1000.0) <= 1e-200
    assert composed_delta([Event(1.0, 1e-3, 5)], epsilon=0.0) == pytest.approx(1.0)
    with pytest.raises(ValueError, match=r"^epsilon is -1; it must be at least 0"):
        composed_delta([Event(0.1, 1.0)], epsilon=-1)
