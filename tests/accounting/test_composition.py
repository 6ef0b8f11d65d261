"""The tilted series against plain convolution; what it depends on, and what it must not."""

from dataclasses import replace

import numpy as np
import pytest

from privet.accounting import BallsInBins, Event, FixedSize, pld, release_losses
from privet.accounting.composition import Composer

PLANS = {
    "two": ([Event(0.02, 1.3, 2)], "add-remove"),
    "little noise": ([Event(0.1, 0.4, 2)], "zero-out"),
    "several": ([Event(0.02, 1.3), Event(0.3, 4.0)], "add-remove"),
    "replaced": ([Event(0.05, 1.1), Event(0.02, 0.7)], "replace-one"),
    "fixed size": ([FixedSize(0.1, 1.7, 2)], "replace-one"),
    "with an epoch": ([Event(0.02, 1.3), BallsInBins(0.9, steps=20)], "add-remove"),
}
MANY = [Event(0.01, 1.0, 3000)]


def counted(events):
    return {replace(event, count=1): event.count for event in events}


def planned(events, delta, adjacency="add-remove"):
    return pld._first_grid(pld._planned(events, delta, adjacency, pld._LOST, ahead=True), delta)


def composed(events, grid, adjacency="add-remove"):
    return Composer(release_losses.losses).compose(counted(events), adjacency, grid)


def plain_delta(events, adjacency, way, tail, epsilon):
    """Return δ of the releases' own losses, every sum of theirs listed."""
    losses, masses, log_finite = np.zeros(1), np.ones(1), 0.0
    for event, number in counted(events).items():
        ((_, ways),) = release_losses.losses([event], adjacency, tail)
        one = ways[way]
        for _ in range(number):
            losses = np.add.outer(losses, one.values).ravel()
            masses = np.outer(masses, one.masses[0]).ravel()
            log_finite += float(np.log1p(-one.infinite[0]))
    above = losses > epsilon
    return float(np.dot(-np.expm1(epsilon - losses[above]), masses[above])) - float(np.expm1(log_finite))


@pytest.mark.parametrize(("events", "adjacency"), PLANS.values(), ids=PLANS)
@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-12])
def test_no_tail_is_lost_and_hardly_any_added(events, adjacency, delta):
    grid, near = planned(events, delta, adjacency)
    found = [way.epsilon(delta, near) for way in composed(events, grid, adjacency)]
    plain = [plain_delta(events, adjacency, way, grid.tail, epsilon) for way, epsilon in enumerate(found)]
    assert max(plain) <= delta * (1 + 1e-9)
    # One Gaussian release more is there; where it matters most, its losses vary less than those in the nodes' cells.
    decisive = int(np.argmax(found))
    if found[decisive] > 0:
        assert delta <= plain_delta(events, adjacency, decisive, grid.tail, 0.98 * found[decisive])


@pytest.mark.parametrize(("delta", "tolerance"), [(1e-5, 1e-11), (1e-12, 1e-8)])
def test_the_tilt_does_not_matter(delta, tolerance):
    """Rounding differs from tilt to tilt, but what is reserved for it does not."""
    grid, near = planned(MANY, delta)
    found = [composed(MANY, replace(grid, tilt=grid.tilt * factor))[0].epsilon(delta, near) for factor in (0.7, 0.85, 1.0, 1.1)]
    assert max(found) == pytest.approx(min(found), rel=tolerance)


def test_a_period_too_short_only_adds():
    grid, near = planned(MANY, 1e-6)
    reference = composed(MANY, grid)[0].epsilon(1e-6, near)
    for share in (2, 4, 8):
        short = replace(grid, period=grid.period / share, frequencies=grid.frequencies // share)
        assert composed(MANY, short)[0].epsilon(1e-6, near) >= reference * (1 - 1e-9)


def test_frequencies_that_are_left_out_are_counted_as_loss():
    grid, near = planned(MANY, 1e-6)
    reference = composed(MANY, grid)[0].epsilon(1e-6, near)
    for share in (2, 4, 8):
        few = composed(MANY, replace(grid, frequencies=grid.frequencies // share))[0]
        assert few.epsilon(1e-6, near) >= reference * (1 - 1e-9)


def test_step_by_step_is_all_at_once_to_the_last_bit():
    stepwise = Composer(release_losses.losses)
    grid, near = planned([Event(0.01, 1.0, 60), Event(0.01, 1.5, 60)], 1e-6)
    for number in range(1, 61):
        counts = {Event(0.01, 1.0): number, **({Event(0.01, 1.5): 2 * (number - 30)} if number > 30 else {})}
        slow = stepwise.compose(counts, "add-remove", grid)
    fast = Composer(release_losses.losses).compose(counts, "add-remove", grid)
    for one, other in zip(slow, fast, strict=True):
        for delta in (1e-3, 1e-6, 1e-8):
            assert one.epsilon(delta, near) == other.epsilon(delta, near)


def test_going_back_is_possible():
    composer = Composer(release_losses.losses)
    grid, near = planned([Event(0.01, 1.0, 64)], 1e-6)

    def asked(number):
        return composer.compose({Event(0.01, 1.0): number}, "add-remove", grid)[0].epsilon(1e-6, near)

    first, further, again = asked(33), asked(60), asked(33)
    assert first == again < further


def test_the_plan_stays_the_same_over_many_steps():
    grids = {planned([Event(0.01, 1.0, number)], 1e-5)[0] for number in range(1, 10_001, 7)}
    assert len(grids) <= 16


def test_epsilon_falls_as_delta_grows():
    grid, near = planned(MANY, 1e-6)
    (way, _) = composed(MANY, grid)
    found = [way.epsilon(delta, near) for delta in (1e-8, 1e-6, 1e-4)]
    assert found == sorted(found, reverse=True)
    assert way.delta(found[1]) == pytest.approx(1e-6, rel=1e-9)
    assert (np.diff([way.delta(epsilon) for epsilon in np.linspace(0, 9, 40)]) <= 0).all()
