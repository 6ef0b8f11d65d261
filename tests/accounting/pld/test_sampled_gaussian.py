"""One release's losses against its exact δ(ε)."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

import exact_deltas
from privet.accounting.pld import sampled_gaussian
from privet.accounting.pld.discrete_loss import nodes

CASES = [(0.01, 1.1), (0.3, 2.3), (1e-4, 0.6), (0.9, 0.35), (1.0, 1.7), (0.05, 30.0)]
EPSILONS = [0.0, 0.003, 0.04, 0.3, 1.0, 2.5, 6.0]


def delta(losses, epsilon, row=0):
    return losses.infinite[row] + float(np.sum(losses.masses[row] * -np.expm1(np.minimum(epsilon - losses.values, 0.0))))


def on_nodes(q, sigma, adjacency, width, tail):
    return sampled_gaussian.poisson(q, sigma, adjacency, nodes(width, *sampled_gaussian.span(q, sigma, adjacency, tail)))


def exact(q, sigma, way, epsilon):
    return float(exact_deltas.WAYS[way](q, sigma, epsilon))


@pytest.mark.parametrize(("q", "sigma"), CASES)
@pytest.mark.parametrize(("adjacency", "ways"), [("add-remove", ["remove", "add"]), ("replace-one", ["replace"])])
def test_one_release_is_never_too_small_and_close(q, sigma, adjacency, ways):
    found = on_nodes(q, sigma, adjacency, 2.0 ** math.floor(math.log2(0.004 * min(1.0, q / sigma * 10))), 1e-14)
    assert len(found) == len(ways)
    for losses, way in zip(found, ways, strict=True):
        assert losses.masses.min() >= 0
        assert losses.masses.sum() + losses.infinite[0] == pytest.approx(1, abs=1e-12)
        assert 0 <= losses.infinite[0] <= 1e-13
        # Q's masses, e^{−loss} times P's, add up to at most one and to nearly that.
        assert 1 - 1e-6 <= float(np.sum(losses.masses * np.exp(-losses.values))) <= 1 + 1e-9
        for epsilon in EPSILONS:
            truth = exact(q, sigma, way, epsilon)
            assert truth - 1e-15 <= delta(losses, epsilon) <= truth * (1 + 8e-2) + 2e-13
            node = float(losses.values[np.argmin(np.abs(losses.values - epsilon))])
            assert delta(losses, node) == pytest.approx(exact(q, sigma, way, node), rel=1e-6, abs=2e-13)


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
def test_many_releases_at_once_are_each_of_them_alone(adjacency):
    rates, deviations = np.array([q for q, _ in CASES]), np.array([sigma for _, sigma in CASES])
    grid = nodes(2.0**-7, -300.0, 300.0)
    for way, together in enumerate(sampled_gaussian.poisson(rates, deviations, adjacency, grid)):
        for row, (q, sigma) in enumerate(CASES):
            alone = sampled_gaussian.poisson(q, sigma, adjacency, grid)[way]
            np.testing.assert_allclose(together.masses[row], alone.masses[0], rtol=1e-12, atol=1e-16)
            assert together.infinite[row] == pytest.approx(alone.infinite[0], rel=1e-12, abs=1e-16)
            assert together.mirrored == alone.mirrored


@settings(max_examples=40)
@given(
    q=st.floats(1e-6, 1.0),
    sigma=st.floats(0.1, 30.0),
    by=st.floats(1.0, 1.5),
    adjacency=st.sampled_from(["add-remove", "replace-one"]),
)
def test_more_sampling_and_less_noise_dominate_at_every_epsilon(q, sigma, by, adjacency):
    """On the same nodes, up to what rounding does."""
    low, high = sampled_gaussian.span(min(1.0, q * by), sigma / by, adjacency, 1e-12)
    grid = nodes(2.0**-8, low, high)
    less = sampled_gaussian.poisson(q, sigma, adjacency, grid)
    for more in (
        sampled_gaussian.poisson(min(1.0, q * by), sigma, adjacency, grid),
        sampled_gaussian.poisson(q, sigma / by, adjacency, grid),
    ):
        for one, other in zip(less, more, strict=True):
            for epsilon in np.linspace(0, max(high, 0.01), 15):
                assert delta(one, epsilon) <= delta(other, epsilon) * (1 + 1e-9) + 1e-13


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
def test_the_spread_grows_with_rate_and_with_less_noise_and_is_the_deviation(adjacency):
    rates, deviations = np.geomspace(1e-7, 1, 25), np.geomspace(40, 0.05, 25)
    spreads = np.array(
        [[sampled_gaussian.spread(float(q), float(sigma), adjacency, 1e-9) for sigma in deviations] for q in rates]
    )
    assert (np.diff(spreads, axis=0) > 0).all()
    assert (np.diff(spreads, axis=1) > 0).all()
    reach = 2 if adjacency == "replace-one" else 1
    assert sampled_gaussian.spread(1.0, 7.0, adjacency, 1e-12) == pytest.approx(reach / 7, rel=1e-6)
    # q·√(e^{1/σ²} − 1), or 2q·√sinh(1/σ²), for small rates.
    small = 2 * math.sqrt(math.sinh(1 / 4)) if reach == 2 else math.sqrt(math.expm1(1 / 4))
    assert sampled_gaussian.spread(1e-4, 2.0, adjacency, 1e-15) == pytest.approx(1e-4 * small, rel=1e-3)


@pytest.mark.parametrize("epsilon", [2.0, 6.0, 12.0])
def test_the_far_tail_is_right_to_many_digits(epsilon):
    q, sigma = 0.01, 1.1
    remove = on_nodes(q, sigma, "add-remove", 2.0**-7, 1e-60)[0]
    epsilon = float(remove.values[np.argmin(np.abs(remove.values - epsilon))])
    truth = exact(q, sigma, "remove", epsilon)
    assert truth * (1 - 1e-11) <= delta(remove, epsilon) <= truth * (1 + 1e-8) + 1e-60


def test_points_are_where_the_losses_are():
    losses = np.array([-0.0100, -0.00999, -1e-9, 0.0, 1e-9, 0.5, 0.9999, 1.0, 3.0, 40.0, 900.0])
    for q, sigma in [*CASES, (1 - 1e-12, 0.8)]:
        rates, deviations = np.array([[q]]), np.array([[sigma]])
        points = sampled_gaussian.replacement_points(losses, rates, deviations)[0]
        np.testing.assert_allclose(sampled_gaussian._loss(points, q, sigma, "replace-one"), losses, rtol=1e-7, atol=1e-13)
        reachable = losses[losses > math.log1p(-q) * 0.99] if q < 1 else losses
        points = sampled_gaussian._removal_points(reachable, rates, deviations)[0]
        np.testing.assert_allclose(sampled_gaussian._loss(points, q, sigma, "add-remove"), reachable, rtol=1e-7, atol=1e-13)
    assert sampled_gaussian._removal_points(np.array([-0.5]), np.array([[0.01]]), np.array([[1.0]]))[0, 0] == -math.inf


@pytest.mark.parametrize("tail", [1e-9, 1e-30, 1e-250])
@pytest.mark.parametrize("q", [1.0, 0.3, 1e-5, 1e-12])
def test_bounds_leave_out_no_more_than_the_tail(q, tail):
    low, high = sampled_gaussian.bounds(q, 2.3, "add-remove", tail)
    assert (1 - q) * ndtr(-high / 2.3) + q * ndtr((1 - high) / 2.3) <= tail * (1 + 1e-9)
    assert ndtr(low / 2.3) <= tail * (1 + 1e-9)


@pytest.mark.parametrize(("q", "sigma"), [(0.01, 1.1), (0.3, 2.3), (1.0, 1.7)])
def test_fixed_size_is_the_removal_of_twice_the_bound_and_its_mirror_image(q, sigma):
    _, high = sampled_gaussian.span(q, sigma / 2, "add-remove", 1e-14)
    (losses,) = sampled_gaussian.without_replacement(q, sigma, nodes(2.0**-7, -high, high))
    assert losses.masses.sum() + losses.infinite[0] == pytest.approx(1, abs=1e-12)
    for target, sign in itertools.product((0.01, 0.3, 1.0, 2.5), (1, -1)):
        epsilon = float(losses.values[np.argmin(np.abs(losses.values - target))])
        truth = exact(q, sigma / 2, "remove", epsilon)
        if sign == 1:
            assert truth <= delta(losses, epsilon) + 1e-15 <= truth * (1 + 1e-6) + 2e-12
        else:  # δ(−ε) of a symmetric pair is 1 − e^{−ε}·(1 − δ(ε)).
            assert delta(losses, -epsilon) == pytest.approx(1 - math.exp(-epsilon) * (1 - truth), rel=1e-6)


@pytest.mark.parametrize(("adjacency", "way"), [("add-remove", "remove"), ("replace-one", "replace")])
def test_what_lies_above_all_nodes_is_an_infinite_loss(adjacency, way):
    """Then δ at the highest node is P's mass above it, all of it."""
    q, sigma = 0.3, 1.1
    losses = sampled_gaussian.poisson(q, sigma, adjacency, nodes(2.0**-6, -1.0, 0.5))[0]
    highest = float(losses.values[-1])
    assert losses.masses.sum() + losses.infinite[0] == pytest.approx(1, abs=1e-12)
    assert delta(losses, highest) == pytest.approx(losses.infinite[0], rel=1e-9)
    assert losses.infinite[0] > exact(q, sigma, way, highest) > 0.01
