"""The tilted series against plain convolution, and its independence of tilt, order and history."""

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest

from privet.accounting import BallsInBinsEvent, Event, FixedSizeEvent
from privet.accounting.pld import composition, event_losses
from privet.accounting.pld.composition import Composer
from privet.accounting.pld.discrete_loss import nodes
from privet.accounting.pld.grid_selection import first_grids, forecast
from privet.accounting.queries import composed_epsilon

PLANS = {
    "two": ([Event(0.02, 1.3, 2)], "add-remove"),
    "little noise": ([Event(0.1, 0.4, 2)], "zero-out"),
    "several": ([Event(0.02, 1.3), Event(0.3, 4.0)], "add-remove"),
    "replaced": ([Event(0.05, 1.1), Event(0.02, 0.7)], "replace-one"),
    "fixed size": ([FixedSizeEvent(0.1, 1.7, 2)], "replace-one"),
    "with an epoch": ([Event(0.02, 1.3), BallsInBinsEvent(0.9, steps=20)], "add-remove"),
}
MANY, FEW = [Event(0.01, 1.0, 3000)], [Event(0.004, 1.1, 3)]


def counted(events):
    return {replace(event, count=1): event.count for event in events}


def planned(events, delta, adjacency="add-remove"):
    (grid,), near = first_grids(forecast(events, delta, adjacency, ahead=True), delta)
    return grid, near


def composed(events, *grids, adjacency="add-remove"):
    return Composer(event_losses.losses).compose(counted(events), adjacency, grids)


@lru_cache(maxsize=2)
def every_sum(events, adjacency, tail, way):
    """Return the sums of the releases' own losses, their probabilities, and log P[no loss is infinite]."""
    losses, masses, log_finite = np.zeros(1), np.ones(1), 0.0
    for event, number in counted(events).items():
        ((_, ways),) = event_losses.losses([event], adjacency, tail)
        one = ways[way]
        for _ in range(number):
            losses = np.add.outer(losses, one.values).ravel()
            masses = np.outer(masses, one.masses[0]).ravel()
            log_finite += float(np.log1p(-one.infinite[0]))
    return losses, masses, log_finite


def plain_delta(events, adjacency, way, tail, epsilon):
    losses, masses, log_finite = every_sum(tuple(events), adjacency, tail, way)
    above = losses > epsilon
    return float(np.dot(-np.expm1(epsilon - losses[above]), masses[above])) - float(np.expm1(log_finite))


@pytest.mark.parametrize(("events", "adjacency"), PLANS.values(), ids=PLANS)
@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-12])
def test_no_tail_is_lost_and_hardly_any_added(events, adjacency, delta):
    grid, near = planned(events, delta, adjacency)
    found = [way.epsilon(delta, near) for way in composed(events, grid, adjacency=adjacency)]
    plain = [plain_delta(events, adjacency, way, grid.tail, epsilon) for way, epsilon in enumerate(found)]
    assert max(plain) <= delta * (1 + 1e-9)
    # One Gaussian release more is there; where it matters most, its losses vary less than those in the nodes' cells.
    decisive = int(np.argmax(found))
    if found[decisive] > 0:
        assert delta <= plain_delta(events, adjacency, decisive, grid.tail, 0.98 * found[decisive])


@pytest.mark.parametrize(("events", "adjacency"), PLANS.values(), ids=PLANS)
@pytest.mark.parametrize("frequencies", [5, 16, 40, 300])
def test_frequencies_that_are_not_summed_are_bounded(events, adjacency, frequencies):
    """However few are summed, and most where they would matter most."""
    grid, near = planned(events, 1e-5, adjacency)
    for way, one in enumerate(composed(events, replace(grid, frequencies=frequencies), adjacency=adjacency)):
        for epsilon in near * np.array([0.1, 0.5, 0.9, 1.0, 1.2]):
            assert one.delta(epsilon) >= min(1.0, plain_delta(events, adjacency, way, grid.tail, epsilon) * (1 - 1e-9))


@pytest.mark.parametrize(("events", "adjacency"), PLANS.values(), ids=PLANS)
def test_epsilon_does_not_depend_on_where_the_search_starts(events, adjacency):
    """Also far below it: a search that stops at its start would state too small an ε."""
    grid, near = planned(events, 1e-5, adjacency)
    for way in composed(events, grid, adjacency=adjacency):
        found = way.epsilon(1e-5, near)
        assert way.delta(found) <= 1e-5 * (1 + 1e-9)
        for share in (1e-3, 0.3, 0.9, 0.999, 1.001, 1.5, 4.0):
            assert way.epsilon(1e-5, share * found) == pytest.approx(found, rel=1e-11)


RARE = {
    "little noise": ([Event(3e-5, 0.27, 2)], "add-remove", 1e-8),
    "more noise": ([Event(1e-4, 1.0, 2)], "add-remove", 1e-20),
    "one": ([Event(2e-4, 0.8)], "zero-out", 1e-16),
    "replaced": ([Event(1e-5, 0.5, 2)], "replace-one", 1e-12),
    "fixed size": ([FixedSizeEvent(1e-5, 0.8, 2)], "replace-one", 1e-12),
    "with a full batch": ([Event(1e-5, 0.4), Event(1.0, 60.0)], "add-remove", 1e-9),
}


def apart(events, delta, adjacency):
    """Return what is summed if far losses are apart, and ε."""
    near = composed_epsilon(events, delta=delta, adjacency=adjacency)
    return forecast(events, delta, adjacency, ahead=False).grids_apart(near, delta), near


@pytest.mark.product
@pytest.mark.parametrize(("events", "adjacency", "delta"), RARE.values(), ids=RARE)
def test_where_everything_is_rare_no_tail_is_lost_and_hardly_any_added(events, adjacency, delta):
    grids, near = apart(events, delta, adjacency)
    assert len(grids) == 2
    ways = composed(events, *grids, adjacency=adjacency)
    found = [way.epsilon(delta, near) for way in ways]
    decisive = int(np.argmax(found))
    assert not ways[decisive].is_rounded(found[decisive])
    plain = [plain_delta(events, adjacency, way, grids[0].tail, epsilon) for way, epsilon in enumerate(found)]
    assert max(plain) <= delta * (1 + 1e-9)
    assert delta <= plain_delta(events, adjacency, decisive, grids[0].tail, 0.99 * found[decisive])


@pytest.mark.product
@pytest.mark.parametrize(("events", "adjacency", "delta"), RARE.values(), ids=RARE)
def test_wherever_far_losses_begin_nothing_is_lost(events, adjacency, delta):
    """Also where they are most of all, under tilts that suit none, and where their scale is wrong."""
    suited, near = apart(events, delta, adjacency)
    rng = np.random.default_rng()
    for power in (rng.integers(-60, 60), -100.0):  # as small as by the latter, many sums are no whole number of their type
        start = suited[0].start * 2.0 ** rng.uniform(-6, 4)
        others, added = (replace(grid, start=start, tilt=grid.tilt * 2.0 ** rng.uniform(-1, 1)) for grid in suited)
        added = replace(added, scale=added.scale * 2.0**power)
        for way, one in enumerate(composed(events, others, added, adjacency=adjacency)):
            for epsilon in near * rng.uniform(0.1, 1.5, size=3):
                plain = plain_delta(events, adjacency, way, others.tail, epsilon)
                assert one.delta(epsilon) >= plain * (1 - 1e-9), (others, added, way, epsilon)


@pytest.mark.parametrize(
    ("tilt", "added_tilt", "start", "scale", "epsilon"),
    [(1.51, 1.70, 2.51, 2.0**31, 11.59), (4.11, 1.71, 10.61, 2.0**45, 10.48), (1.20, 1.96, 4.06, 2.0**37, 11.18)],
)
def test_rounding_is_covered_where_many_far_losses_are_expected(tilt, added_tilt, start, scale, epsilon):
    """An error of the logarithm is multiplied by what it is the logarithm of."""
    events, adjacency, delta = RARE["little noise"]
    (others, added), _ = apart(events, delta, adjacency)
    grids = replace(others, start=start, tilt=tilt), replace(added, start=start, tilt=added_tilt, scale=scale)
    for way, one in enumerate(composed(events, *grids, adjacency=adjacency)):
        assert one.delta(epsilon) >= plain_delta(events, adjacency, way, others.tail, epsilon) * (1 - 1e-9)


def test_where_the_others_are_too_small_to_count_far_losses_make_up_for_it():
    """Ten times o = e^{-50} is no number that is kept, and ten times o + f = e^{-0.1} is one all the same."""
    logs, part = np.array([[[0.0, -50.0]], [[0.0, 0.0]], [[0.1, 49.9]], [[0.0, 0.0]]]), np.zeros(1)
    total = composition._Sum(1.0, {}, np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64))
    total.change("release", logs, composition._Part(nodes(0.1, -1.0, 1.0), 10, part, part, part, np.zeros((2, 1, 1))))
    magnitudes, turns, added = total.terms(0)
    np.testing.assert_array_equal(turns, 0.0)
    np.testing.assert_allclose(np.exp(magnitudes) * added, [np.expm1(1.0), np.exp(-1.0)], rtol=1e-9)


@pytest.mark.parametrize(("rounded", "above"), [(np.floor, False), (np.ceil, True)])
def test_far_losses_of_many_releases_are_those_of_a_plain_convolution(rounded, above):
    """Probabilities of losses on an even grid, rounded to one side, and added without any cancellation."""
    event, number, delta, width = Event(1e-4, 1.0), 16, 1e-20, 2.0**-12
    found = composed_epsilon([replace(event, count=number)], delta=delta)
    ((_, (way, _)),) = event_losses.losses([event], "add-remove", 1e-33)
    places = rounded(np.minimum(way.values, 1.5) / width).astype(int)
    first, masses = places.min(), np.bincount(places - places.min(), way.masses[0])
    for _ in range(number.bit_length() - 1):
        first, masses = 2 * first, np.convolve(masses, masses)
    losses = width * (first + np.arange(len(masses)))

    def plain(epsilon):
        return float(np.dot(np.maximum(-np.expm1(epsilon - losses), 0.0), masses))

    assert plain(0.99 * found) >= delta if above else plain(found) <= delta


@pytest.mark.parametrize(("events", "delta", "tolerance"), [(MANY, 1e-5, 1e-11), (MANY, 1e-12, 1e-8), (FEW, 1e-5, 3e-10)])
def test_the_tilt_does_not_matter(events, delta, tolerance):
    """Rounding differs from tilt to tilt, but what is reserved for it does not."""
    grid, near = planned(events, delta)
    found = [composed(events, replace(grid, tilt=grid.tilt * factor))[0].epsilon(delta, near) for factor in (0.7, 0.85, 1.0, 1.1)]
    assert max(found) == pytest.approx(min(found), rel=tolerance)


def test_a_period_too_short_only_adds():
    grid, near = planned(MANY, 1e-6)
    reference = composed(MANY, grid)[0].epsilon(1e-6, near)
    for share in (2, 4, 8):
        short = replace(grid, period=grid.period / share, frequencies=grid.frequencies // share)
        assert composed(MANY, short)[0].epsilon(1e-6, near) >= reference * (1 - 1e-9)


def test_step_by_step_is_all_at_once_to_the_last_bit():
    stepwise = Composer(event_losses.losses)
    grid, near = planned([Event(0.01, 1.0, 60), Event(0.01, 1.5, 60)], 1e-6)
    for number in range(1, 61):
        counts = {Event(0.01, 1.0): number, **({Event(0.01, 1.5): 2 * (number - 30)} if number > 30 else {})}
        slow = stepwise.compose(counts, "add-remove", [grid])
    fast = Composer(event_losses.losses).compose(counts, "add-remove", [grid])
    for one, other in zip(slow, fast, strict=True):
        for delta in (1e-3, 1e-6, 1e-8):
            assert one.epsilon(delta, near) == other.epsilon(delta, near)


def test_the_plan_stays_the_same_over_many_steps():
    grids = {planned([Event(0.01, 1.0, number)], 1e-5)[0] for number in range(1, 10_001, 7)}
    assert len(grids) <= 16
