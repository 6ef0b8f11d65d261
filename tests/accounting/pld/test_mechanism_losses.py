"""Compositions with Laplace noise, randomised response and (ε, δ)-DP releases: exact values, and bounds from both sides."""

import math

import pytest
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from privet.accounting import EpsilonDeltaEvent, Event, LaplaceEvent, RandomizedResponseEvent
from privet.accounting.queries import composed_delta, composed_epsilon
from privet.errors import InvalidArgumentError


@settings(max_examples=10)
@given(
    st.one_of(st.just(1.0), st.floats(-2.5, -0.1).map(lambda power: 10**power)),
    st.floats(0.3, 6.0),
    st.integers(2, 200),
    st.floats(-7.0, -2.0),
)
def test_dp_accounting_agrees_on_laplace_noise_from_both_sides(q, scale, steps, exponent):
    ours = composed_epsilon([LaplaceEvent(q, scale, steps)], delta=10**exponent)
    above, below = (
        privacy_loss_distribution.from_laplace_mechanism(
            scale, value_discretization_interval=1e-3, sampling_prob=q, pessimistic_estimate=pessimistic
        )
        .self_compose(steps)
        .get_epsilon_for_delta(10**exponent)
        for pessimistic in (True, False)
    )
    assert below * (1 - 1e-6) - 1e-9 <= ours <= above * (1 + 2e-2) + 1e-2


def exact_delta(epsilon_of_one, number, epsilon):
    """Return δ of answers with two values: the losses are binomial."""
    share = 1 / (1 + math.exp(-epsilon_of_one))
    return sum(
        binom.pmf(hits, number, share) * -math.expm1(min(0.0, epsilon - (2 * hits - number) * epsilon_of_one))
        for hits in range(number + 1)
    )


@pytest.mark.parametrize(
    ("epsilon_of_one", "number", "delta"),
    [(epsilon, number, (1e-3, 1e-7)[(i + j) % 2]) for i, epsilon in enumerate((0.05, 0.3, 1.0, 3.0))
     for j, number in enumerate((2, 7, 60, 500))],
)  # fmt: skip
def test_randomized_responses_compose_as_their_binomial_losses(epsilon_of_one, number, delta):
    share = 1 / (1 + math.exp(-epsilon_of_one))
    found = composed_epsilon([RandomizedResponseEvent(share, 2, number)], delta=delta, adjacency="replace-one")
    assert exact_delta(epsilon_of_one, number, found) <= delta * (1 + 1e-9)
    assert exact_delta(epsilon_of_one, number, found * 0.99 - 1e-3) > delta
    # Nothing is known of the releases but their ε, and randomised response is the worst of them.
    assert composed_epsilon([EpsilonDeltaEvent(epsilon_of_one, 0.0, number)], delta=delta) == pytest.approx(found, rel=1e-6)
    by_rdp = composed_epsilon([EpsilonDeltaEvent(epsilon_of_one, 0.0, number)], delta=delta, accountant="rdp")
    assert found <= by_rdp * (1 + 1e-3)


def test_several_values_of_an_answer_cost_less_than_their_epsilon_says():
    event = RandomizedResponseEvent(0.4, 10, 30)
    found = composed_epsilon([event], delta=1e-6, adjacency="replace-one")
    assert found < composed_epsilon([EpsilonDeltaEvent(event.epsilon, 0.0, 30)], delta=1e-6, adjacency="replace-one")
    by_rdp = composed_epsilon([event], delta=1e-6, adjacency="replace-one", accountant="rdp")
    assert found <= by_rdp


def test_deltas_of_releases_add_up():
    events = [EpsilonDeltaEvent(0.2, 1e-6, 5), EpsilonDeltaEvent(0.4, 1e-5)]
    assert composed_epsilon(events, delta=1.49e-5) == math.inf
    # Of the rest of δ hardly anything is left, so ε is the sum.
    assert composed_epsilon(events, delta=1.5001e-5) == pytest.approx(1.4, rel=1e-3)
    assert composed_epsilon(events, delta=1e-2) < 1.4
    assert composed_delta(events, epsilon=50.0) == pytest.approx(1.5e-5, rel=1e-3)


def test_replacing_moves_a_number_by_twice_the_bound():
    twice = composed_epsilon([LaplaceEvent(1.0, 9.0, 40)], delta=1e-6, adjacency="replace-one")
    assert twice == pytest.approx(composed_epsilon([LaplaceEvent(1.0, 4.5, 40)], delta=1e-6), rel=1e-6)


def test_a_mixture_costs_more_than_its_parts_and_less_than_their_sum():
    full, sampled = LaplaceEvent(1.0, 9.0, 4), LaplaceEvent(0.1, 2.0, 40)
    for adjacency, laplace in (("add-remove", full), ("replace-one", full), ("add-remove", sampled)):
        parts = [[Event(0.02, 1.1, 300)], [laplace], [EpsilonDeltaEvent(0.1, 0.0, 3)]]
        alone = [composed_epsilon(part, delta=1e-6, adjacency=adjacency) for part in parts]
        together = composed_epsilon([event for part in parts for event in part], delta=1e-6, adjacency=adjacency)
        assert max(alone) < together < sum(alone)


@pytest.mark.parametrize(("make", "name"), [
    (lambda: LaplaceEvent(0.0, 1.0), "sampling_rate"), (lambda: LaplaceEvent(1.0, 1e-3), "noise_multiplier"),
    (lambda: LaplaceEvent(1.0, 1.0, -1), "steps"), (lambda: RandomizedResponseEvent(0.4), "truthful"),
    (lambda: RandomizedResponseEvent(1.0), "truthful"), (lambda: RandomizedResponseEvent(0.5, 1), "answers"),
    (lambda: EpsilonDeltaEvent(0.0), "epsilon"), (lambda: EpsilonDeltaEvent(101.0), "epsilon"),
    (lambda: EpsilonDeltaEvent(1.0, 1.0), "delta"),
])  # fmt: skip
def test_bad_parameters_are_refused_by_name(make, name):
    with pytest.raises(InvalidArgumentError, match=rf"^{name} is"):
        make()


def test_unknown_bounds_are_refused():
    with pytest.raises(InvalidArgumentError, match=r"^adjacency is 'replace-one'.*sampling_rate=1"):
        composed_epsilon([LaplaceEvent(0.1, 1.0)], delta=1e-5, adjacency="replace-one")
    with pytest.raises(InvalidArgumentError, match=r"^adjacency is 'add-remove'"):
        composed_epsilon([RandomizedResponseEvent(0.75)], delta=1e-5)
    for event in (LaplaceEvent(0.1, 1.0), EpsilonDeltaEvent(1.0, 1e-7)):
        with pytest.raises(InvalidArgumentError, match=r"^accountant is 'rdp'"):
            composed_epsilon([event], delta=1e-5, accountant="rdp")
