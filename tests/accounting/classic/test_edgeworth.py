import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from privet.accounting import Event, edgeworth
from privet.accounting.classic.edgeworth import _directions, _refined_distance
from privet.accounting.queries import composed_epsilon


@settings(max_examples=15)
@given(
    st.lists(
        st.builds(Event, st.floats(0.005, 1.0), st.floats(0.8, 8.0), st.integers(1, 10**6)), min_size=1, max_size=3
    ),
    st.floats(1e-6, 0.2),
    st.sampled_from(["add-remove", "replace-one"]),
)  # fmt: skip
def test_the_interval_contains_epsilon(events, delta, adjacency):
    exact = composed_epsilon(events, delta=delta, adjacency=adjacency)
    low, high = edgeworth.interval(events, delta, adjacency)
    assert low <= exact * (1 + 1e-6)
    assert exact <= high * (1 + 1e-3) + 1e-6  # ours is an upper bound by as much
    assert low <= edgeworth.epsilon(events, delta, adjacency) * (1 + 1e-6)


@pytest.mark.parametrize(("setting", "adjacency", "tolerance"), [
    ((0.01, 4.0, 10_000), "add-remove", 1e-3),
    ((256 / 60_000, 1.1, 14_062), "add-remove", 1e-2),
    ((0.01, 1.0, 10_000), "add-remove", 3e-2),
])  # fmt: skip
def test_the_estimate_is_closer_than_the_central_limit(setting, adjacency, tolerance):
    events = [Event(*setting)]
    exact = composed_epsilon(events, delta=1e-5, adjacency=adjacency)
    found, by_gdp = (composed_epsilon(events, delta=1e-5, adjacency=adjacency, accountant=name) for name in ("edgeworth", "gdp"))
    assert abs(found / exact - 1) < tolerance
    assert abs(found - exact) < abs(by_gdp - exact) + 1e-4 * exact


def test_the_estimate_can_be_far_too_small():
    events = [Event(32 / 550_152, 0.4, 51_576)]
    assert composed_epsilon(events, delta=1.8e-6, accountant="edgeworth") < 0.5 * composed_epsilon(events, delta=1.8e-6)
    assert edgeworth.interval(events, 1.8e-6, "add-remove")[1] == np.inf


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
def test_it_is_exact_without_sampling(adjacency):
    events = [Event(1.0, 20.0, 50), Event(1.0, 3.0)]
    exact = composed_epsilon(events, delta=1e-5, adjacency=adjacency)
    assert composed_epsilon(events, delta=1e-5, adjacency=adjacency, accountant="edgeworth") == pytest.approx(exact, rel=1e-8)
    assert edgeworth.interval(events, 1e-5, adjacency) == pytest.approx((exact, exact), rel=1e-8)


@pytest.mark.parametrize("event", [Event(0.3, 1.0, 40), Event(0.05, 2.0, 1000)])
def test_distances_to_the_expansion_are_bounded(event):
    """Sums of losses are simulated, and their distribution functions compared everywhere."""
    rng, number = np.random.default_rng(), 20_000
    for losses in _directions([event], "add-remove")[0][:1]:
        total = np.zeros(number)
        for _ in range(event.count):
            x = event.noise_multiplier * rng.standard_normal(number) + (rng.random(number) < event.sampling_rate)
            total += np.log1p(event.sampling_rate * np.expm1((x - 0.5) / event.noise_multiplier**2))
        assert total.mean() == pytest.approx(losses.mean, abs=7 * losses.deviation / number**0.5)
        assert total.std() == pytest.approx(losses.deviation, rel=0.1)
        total.sort()
        expansion = 1 - losses.survival(total, False)
        # Dvoretzky–Kiefer–Wolfowitz at 1e-7.
        noise = (np.log(2 / 1e-7) / (2 * number)) ** 0.5
        shown = np.abs(expansion - (np.arange(number) + 0.5) / number).max()
        assert shown <= min(losses.distance(), _refined_distance(losses)) + noise


def test_distances_count_on_both_sides():
    """δ of the upper end is that of the expansion and both distances, and of the lower end that without them."""
    events, delta = [Event(0.01, 5.0, 10**5)], 0.05
    low, high = edgeworth.interval(events, delta, "replace-one")
    ((first, second),) = _directions(events, "replace-one")
    for epsilon, sign in ((high, 1), (low, -1)):
        mine, theirs = (one.survival(np.array([epsilon]), False)[0] for one in (first, second))
        found = mine + sign * first.distance() - np.exp(epsilon) * max(0.0, theirs - sign * second.distance())
        assert found == pytest.approx(delta, rel=1e-6)


def test_refined_distances_beat_berry_esseen_for_many_releases():
    losses = _directions([Event(0.1, 3.0, 10**6)], "add-remove")[0][0]
    assert _refined_distance(losses) < 0.6 * 0.5583 * losses.absolute
    assert losses.distance() == _refined_distance(losses)
    assert losses.survival(np.array([losses.mean + 2 * losses.deviation]), True)[0] == pytest.approx(norm.sf(2), rel=0.01)
