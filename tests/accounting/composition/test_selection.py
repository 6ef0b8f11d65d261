"""Private selection: the cost of the best of a random number of runs is a bound, and agrees with published values."""

import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.special import logsumexp

from privet.accounting import Event
from privet.accounting.composition.selection import (
    PoissonTrials,
    TruncatedNegativeBinomial,
    curve,
    deltas,
    epsilon,
    geometric,
    logarithmic,
)
from privet.accounting.queries import composed_epsilon
from privet.accounting.rdp import ORDERS
from privet.errors import InvalidArgumentError

LAWS = {
    "logarithmic": logarithmic(6.5), "geometric": geometric(3.2), "η = ½": TruncatedNegativeBinomial(8.0, 0.5),
    "η = −½": TruncatedNegativeBinomial(4.0, -0.5), "η = 5": TruncatedNegativeBinomial(20.0, 5.0),
    "Poisson": PoissonTrials(7.3),
}  # fmt: skip
every = pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)


def probabilities(law, until=3000):
    """Return (smallest number, P[K = that], P[K = the next], …)."""
    number, probability = law.start()
    first, found = number, []
    while len(found) < until:
        found.append(probability)
        probability *= law.ratio(number)
        number += 1
    return first, np.array(found)


@every
def test_a_law_has_its_mean(law):
    first, found = probabilities(law)
    assert found.sum() == pytest.approx(1, rel=1e-9)
    assert found @ (first + np.arange(len(found))) == pytest.approx(law.mean, rel=1e-6)


def test_the_laws_are_those_of_the_textbook():
    numbers = np.arange(1, 60)
    found = probabilities(geometric(3.2), 59)[1]
    np.testing.assert_allclose(found, stats.geom.pmf(numbers, 1 / 3.2), rtol=1e-9)
    law = logarithmic(6.5)
    np.testing.assert_allclose(probabilities(law, 59)[1], stats.logser.pmf(numbers, 1 - math.exp(-law.exponent)), rtol=1e-9)
    law = TruncatedNegativeBinomial(20.0, 5.0)
    whole = stats.nbinom(5.0, math.exp(-law.exponent))
    np.testing.assert_allclose(probabilities(law, 59)[1], whole.pmf(numbers) / whole.sf(0), rtol=1e-9)
    np.testing.assert_allclose(probabilities(PoissonTrials(7.3), 30)[1], stats.poisson.pmf(np.arange(30), 7.3), rtol=1e-9)


@every
def test_numbers_are_drawn_from_the_law(law, holds_twice):
    draws, classes = 20_000, 12

    def experiment():
        uniforms = np.random.default_rng().random(draws)
        numbers = np.array([law.quantile(uniform) for uniform in uniforms])
        first, expected = probabilities(law, classes)
        counts = [int((numbers == first + i).sum()) for i in range(classes)]
        return {
            "law": stats.chisquare(
                [*counts, draws - sum(counts)], draws * np.append(expected, 1 - expected.sum())
            ).pvalue
        }  # fmt: skip

    holds_twice(experiment)


@every
def test_the_ends_of_the_uniform_are_reached(law):
    assert law.quantile(0.0) == law.start()[0]
    assert law.mean < law.quantile(1 - 2.0**-53) < 5000


@pytest.mark.parametrize(("make", "name"), [
    (lambda: geometric(0.9), "mean"), (lambda: geometric(1e7), "mean"), (lambda: PoissonTrials(501.0), "mean"),
    (lambda: TruncatedNegativeBinomial(3.0, -1.0), "shape"), (lambda: TruncatedNegativeBinomial(3.0, 51.0), "shape"),
    (lambda: TruncatedNegativeBinomial(1e6, -0.99), "mean"),
])  # fmt: skip
def test_laws_out_of_range_are_refused(make, name):
    with pytest.raises(InvalidArgumentError, match=name):
        make()


@pytest.mark.parametrize(("mean", "shape"), [(1e6, 50.0), (1e6, 0.0), (1e6, -0.5), (1 + 1e-15, 0.0), (1.0, -0.9)])
def test_the_ends_of_the_ranges_work(mean, shape):
    law = TruncatedNegativeBinomial(mean, shape)
    assert 0 < law.start()[1] <= 1
    assert math.isfinite(law.exponent)
    assert np.isfinite(law.cost(ORDERS / 50)).all()


def renyi(p, q):
    """Return the divergences of two finite laws, both ways, the larger one, in ORDERS."""
    pairs = ((np.log(p), np.log(q)), (np.log(q), np.log(p)))
    both = [logsumexp(ORDERS[:, None] * a + (1 - ORDERS[:, None]) * b, axis=1) / (ORDERS - 1) for a, b in pairs]
    return np.maximum(0, np.max(both, axis=0))


def best(law, p):
    """Return the law of the best of K draws from p, whose outcomes are in increasing order; the first is "none"."""
    first, found = probabilities(law)
    reached = [float(found @ at ** (first + np.arange(len(found)))) for at in np.append(0.0, np.cumsum(p) / p.sum())]
    outcomes = np.diff(reached)
    return np.append(reached[0], outcomes) if first == 0 else outcomes


@every
@settings(max_examples=10)
@given(data=st.data())
def test_selection_on_finite_mechanisms_never_costs_more_than_the_bound(law, data):
    """The exact divergence of the whole selection, for made-up mechanisms with a handful of outcomes."""
    size = data.draw(st.integers(2, 6))
    weights = st.lists(st.floats(0.02, 1.0), min_size=size, max_size=size)
    tilt = data.draw(st.floats(0.01, 1.5))
    p = np.array(data.draw(weights))
    q = p * np.exp(tilt * (np.array(data.draw(weights)) - 0.5))
    p, q = p / p.sum(), q / q.sum()
    ours, theirs, bound = best(law, p), best(law, q), law.cost(renyi(p, q))
    assert (renyi(ours, theirs) <= bound + 1e-7).all()
    epsilons = np.array([0.0, 0.1, 1.0, 3.0])
    for one, other in ((ours, theirs), (theirs, ours)):
        exact = np.maximum(0, one - np.exp(epsilons)[:, None] * other).sum(axis=1)
        assert (exact <= deltas(bound, epsilons) + 1e-7).all()


SINGLE = curve([Event(0.02, 1.3, 400)], "add-remove")


@pytest.mark.parametrize("shape", [-0.5, 0.0, 0.5, 1.0, 4.0])
def test_one_run_costs_what_it_costs(shape):
    np.testing.assert_allclose(TruncatedNegativeBinomial(1.0, shape).cost(SINGLE), SINGLE, rtol=1e-12)


@pytest.mark.parametrize("shape", [-0.5, 0.0, 0.5, 1.0, 4.0])
def test_pure_privacy_is_multiplied_by_two_and_the_shape(shape):
    """Corollary 3: (2 + η)·ε, whatever the mean."""
    orders, pure = np.array([1e8, 1e9]), 0.7
    for mean in (10.0, 1000.0):
        found = TruncatedNegativeBinomial(mean, shape).cost(np.full(2, pure), orders)
        assert found[-1] == pytest.approx((2 + shape) * pure, rel=1e-5)


def test_more_runs_and_more_leaking_runs_cost_more():
    for make in (logarithmic, geometric, PoissonTrials):
        costs = [epsilon(make(mean).cost(SINGLE), 1e-5) for mean in (1.0, 3.0, 10.0, 100.0, 400.0)]
        assert sorted(costs) == costs
        assert costs[0] >= epsilon(SINGLE, 1e-5)
        assert epsilon(make(10.0).cost(1.1 * SINGLE), 1e-5) > costs[2]
        assert costs[2] < epsilon(10 * SINGLE, 1e-5)  # the runs themselves, one by one
    by_shape = [epsilon(TruncatedNegativeBinomial(10.0, shape).cost(SINGLE), 1e-5) for shape in (-0.5, 0.0, 0.5, 1.0, 3.0)]
    assert sorted(by_shape) == by_shape


@pytest.mark.parametrize(
    ("make", "shape", "sigma", "mean"),
    [(logarithmic, 0.0, 1.5, 4.0), (geometric, 1.0, 6.0, 60.0), (PoissonTrials, math.inf, 1.5, 60.0), (geometric, 1.0, 1.5, 1.0)],
)
def test_dp_accounting_agrees(make, shape, sigma, mean):
    orders = [1.0, *ORDERS]
    event = dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(sigma), 3)
    theirs = RdpAccountant(orders).compose(dp_accounting.dp_event.RepeatAndSelectDpEvent(event, mean, shape))
    found = epsilon(make(mean).cost(curve([Event(1.0, sigma, 3)], "add-remove")), 1e-6)
    assert found == pytest.approx(theirs.get_epsilon(1e-6), rel=1e-6)


def test_the_conversion_is_the_accountants():
    events = [Event(0.01, 1.1, 300), Event(0.02, 2.3, 50)]
    for adjacency in ("add-remove", "replace-one"):
        expected = composed_epsilon(events, delta=1e-6, adjacency=adjacency, accountant="rdp")
        assert epsilon(curve(events, adjacency), 1e-6) == expected


def test_no_noise_is_no_privacy():
    spoilt = curve([Event(0.01, 1.1, 300), Event(0.01, 0.0)], "add-remove")
    for law in LAWS.values():
        assert math.isinf(epsilon(law.cost(spoilt), 1e-5))
