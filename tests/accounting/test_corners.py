"""Corners of the parameter space: a numerical answer without warnings, and never below a known attack."""

import itertools
import math
import random
import warnings

import pytest

from attacks import shuffled, summed
from privet.accounting import Event, FixedSizeEvent, ShuffledEvent
from privet.accounting.classic import gaussian
from privet.accounting.queries import composed_delta, composed_epsilon

RATES, MULTIPLIERS = (1e-7, 1e-5, 1e-3, 0.3, 1 - 1e-12, 1.0), (0.2, 0.5, 1.0, 30.0, 1e4)
STEPS, DELTAS = (1, 1000, 10**7, 2**31 - 1), (1e-2, 1e-5, 1e-13, 1e-30)
KINDS = {"poisson": (Event, "add-remove"), "replaced": (Event, "replace-one"), "fixed size": (FixedSizeEvent, "replace-one")}
EVERYWHERE = list(itertools.product(KINDS.values(), RATES, MULTIPLIERS, STEPS, DELTAS))


def check(kind, adjacency, q, sigma, steps, delta):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = composed_epsilon([kind(q, sigma, steps)], delta=delta, adjacency=adjacency)
    least = summed(q, sigma, steps, delta, adjacency)
    if kind is FixedSizeEvent:
        # All others contribute C, and the replaced example changes from C to −C: the sum falls by 2C where it is drawn.
        least = max(least, summed(q, sigma / 2, steps, delta))
    most = gaussian.epsilon((2 if adjacency == "replace-one" else 1) * math.sqrt(steps) / sigma, delta)
    assert least * (1 - 1e-9) <= found <= most * (1 + 1e-9), (kind, adjacency, q, sigma, steps, delta)
    assert math.isfinite(found)
    if q == 1.0:
        assert found == pytest.approx(most, rel=1e-9)


def test_corners_drawn_at_random_are_between_an_attack_and_no_amplification():
    for (kind, adjacency), *setting in random.sample(EVERYWHERE, 40):
        check(kind, adjacency, *setting)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "adjacency"), KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("q", RATES)
def test_every_corner_is_between_an_attack_and_no_amplification(kind, adjacency, q):
    for sigma, steps, delta in itertools.product(MULTIPLIERS, STEPS, DELTAS):
        check(kind, adjacency, q, sigma, steps, delta)


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
@pytest.mark.parametrize(
    ("q", "sigma", "steps", "epsilon"),
    [(1e-7, 0.2, 1, 60.0), (0.3, 0.2, 1000, 5000.0), (1.0, 1e4, 10**7, 0.0), (1e-3, 30.0, 2**31 - 1, 60.0)],
)
def test_delta_has_an_answer_everywhere_too(q, sigma, steps, epsilon, adjacency):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = composed_delta([Event(q, sigma, steps)], epsilon=epsilon, adjacency=adjacency)
    assert 0.0 <= found <= 1.0
    # Had it been smaller than this, the attack would have proved more than ε.
    if 1e-290 < found < 1:
        assert summed(q, sigma, steps, min(found * (1 + 1e-9), 1 - 1e-15), adjacency) <= epsilon * (1 + 1e-9) + 1e-9


@pytest.mark.parametrize(("sigma", "steps", "delta"), [(1.0, 1, 1e-5), (0.2, 1000, 1e-30), (1e4, 10**7, 1e-12), (0.5, 7, 1e-2)])
def test_the_attack_is_the_best_there_is_without_sampling(sigma, steps, delta):
    exact = gaussian.epsilon(math.sqrt(steps) / sigma, delta)
    assert exact * 0.99 <= summed(1.0, sigma, steps, delta) <= exact * (1 + 1e-9)
    assert summed(1.0, sigma, steps, delta, "replace-one") <= gaussian.epsilon(2 * math.sqrt(steps) / sigma, delta) * (1 + 1e-9)


@pytest.mark.parametrize(("mu", "delta"), [*zip([1e3, 1e6, 1.001e6, 1e10, 1e20, 1e150], 2 * [1e-2, 1e-5, 1e-30], strict=True)])
def test_hardly_any_noise_has_an_answer_between_bounds_in_closed_form(mu, delta):
    """Half of the privacy loss is above its mean, µ²/2, so that no smaller ε has δ(ε) ≤ 1 %."""
    found = gaussian.epsilon(mu, delta)
    if mu < 1e6:
        assert gaussian.mu(found, delta) == pytest.approx(mu, rel=1e-5)
    assert mu**2 / 2 <= found <= mu**2 / 2 + mu * math.sqrt(2 * math.log(1 / delta)) * (1 + 1e-9)


@pytest.mark.parametrize(("steps", "sigma", "delta", "least"), [(10_000, 0.5, 1e-6, 10.994), (235, 1.0, 1e-5, 3.76)])
def test_what_an_attacker_sees_of_a_shuffle(steps, sigma, delta, least):
    found = shuffled(sigma, steps, delta)
    assert found == pytest.approx(least, abs=2e-3)
    assert found <= composed_epsilon([ShuffledEvent(sigma)], delta=delta, adjacency="zero-out")
    assert found > composed_epsilon([Event(1 / steps, sigma, steps)], delta=delta)
