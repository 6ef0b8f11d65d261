"""Rényi filters: the cost of adaptively chosen releases is a bound for any fixed order, and close to the best."""

import math

import pytest

from privet.accounting import BallsInBinsEvent, Event, TruncatedPoissonEvent
from privet.accounting.composition.filters import filter_order, filtered_epsilon, is_filterable
from privet.accounting.queries import composed_epsilon
from privet.accounting.rdp import ORDERS
from privet.errors import InvalidArgumentError

RUNS = [
    ([Event(0.01, 1.0, 100)], 3.0, 1e-5, "add-remove"),
    ([Event(0.004, 1.2, 100), Event(0.004, 1.6, 100)], 2.0, 1e-6, "zero-out"),
    ([Event(0.1, 4.0, 20)], 5.0, 1e-5, "replace-one"),
    ([Event(1.0, 25.0, 10)], 1.0, 1e-7, "add-remove"),
]


def repetitions(run, target, order, delta, adjacency):
    """Return how often the run can be repeated."""
    number = 0
    while filtered_epsilon(run * (number + 1), order=order, delta=delta, adjacency=adjacency) <= target:
        number += 1
    return number


@pytest.mark.parametrize(("run", "target", "delta", "adjacency"), RUNS)
def test_every_order_bounds_the_composition(run, target, delta, adjacency):
    exact = composed_epsilon(run * 2, delta=delta, adjacency=adjacency)
    for order in ORDERS[::10]:
        assert filtered_epsilon(run * 2, order=float(order), delta=delta, adjacency=adjacency) >= exact


@pytest.mark.parametrize(("run", "target", "delta", "adjacency"), RUNS)
def test_little_of_the_target_is_lost_to_plans_that_may_depend_on_results(run, target, delta, adjacency):
    order = filter_order(run, epsilon=target, delta=delta, adjacency=adjacency)
    number = repetitions(run, target, order, delta, adjacency)
    assert 0.75 * target <= composed_epsilon(run * number, delta=delta, adjacency=adjacency) <= target


@pytest.mark.parametrize(("run", "target", "delta", "adjacency"), RUNS)
def test_no_other_order_lets_whole_repetitions_go_further(run, target, delta, adjacency):
    chosen = filter_order(run, epsilon=target, delta=delta, adjacency=adjacency)
    others = [repetitions(run, target, float(order), delta, adjacency) for order in ORDERS[::7]]
    assert repetitions(run, target, chosen, delta, adjacency) >= max(others)


def test_the_gaussian_mechanism_has_its_closed_form():
    """Full batches: divergences are α/2σ² each, converted by Canonne, Kamath and Steinke's Proposition 12."""
    order, sigma, delta = 12.0, 9.0, 1e-6
    expected = 7 * order / (2 * sigma**2) + math.log1p(-1 / order) - math.log(delta * order) / (order - 1)
    assert filtered_epsilon([Event(1.0, sigma, 7)], order=order, delta=delta, adjacency="add-remove") == pytest.approx(expected)


def test_events_without_divergences_are_refused():
    assert is_filterable([Event(0.1, 2.0, 3), BallsInBinsEvent(2.0, 3)])
    for event in (TruncatedPoissonEvent(0.1, 2.0, 3, 100, 20), Event(0.1, 2.0, 3, projections=30)):
        assert not is_filterable([event])
        with pytest.raises(InvalidArgumentError, match="accountant"):
            filtered_epsilon([event], order=float(ORDERS[60]), delta=1e-5, adjacency="add-remove")


def test_an_order_of_another_version_is_refused():
    with pytest.raises(InvalidArgumentError, match="order"):
        filtered_epsilon([Event(0.1, 2.0)], order=3.14159, delta=1e-5, adjacency="add-remove")


def test_no_noise_has_no_bound():
    assert filtered_epsilon([Event(0.1, 0.0)], order=2.0, delta=1e-5, adjacency="add-remove") == math.inf
