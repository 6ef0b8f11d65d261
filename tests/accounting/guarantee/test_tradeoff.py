"""The meaning of ε, against the closed-form trade-off curve of the Gaussian and against attacks on simulated releases."""

import json
import math

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from privet.accounting import Event, FixedSizeEvent
from privet.accounting.guarantee import tradeoff
from privet.accounting.queries import composed_delta, composed_deltas
from privet.errors import InvalidArgumentError

RATES = np.array([0.0, 1e-4, 1e-3, 0.01, 0.1, 0.5, 0.9, 1.0])


@pytest.mark.parametrize("mu", [0.3, 1.0, 2.5])
def test_the_gaussians_curve_is_met_from_the_safe_side(mu):
    privacy = tradeoff.profile([Event(1.0, 1 / mu)])
    exact = ndtr(ndtri(1 - RATES) - mu)
    found = tradeoff.false_negative_rate(privacy, RATES)
    assert (found <= exact + 1e-9).all()
    np.testing.assert_allclose(found, exact, atol=0.01)
    meaning = tradeoff.meaning([Event(1.0, 1 / mu)])
    assert meaning.advantage == pytest.approx(2 * ndtr(mu / 2) - 1, rel=1e-9)
    for found_share, rate in ((meaning.found_at_one_in_a_thousand, 0.001), (meaning.found_at_one_in_a_hundred, 0.01)):
        exact_share = ndtr(mu - ndtri(1 - rate))
        assert exact_share <= found_share <= exact_share * 1.05 + 1e-3
    assert meaning.bayes_risk <= ndtr(-mu / 2) + 1e-9
    assert meaning.bayes_risk == pytest.approx(ndtr(-mu / 2), abs=0.01)


def test_the_curve_is_symmetric_convex_and_falls():
    privacy = tradeoff.profile([Event(0.05, 1.0, 50)])
    rates = np.linspace(0, 1, 201)
    missed = tradeoff.false_negative_rate(privacy, rates)
    assert (np.diff(missed) <= 1e-12).all()
    assert (np.diff(missed, 2) >= -1e-9).all()
    assert (missed <= 1 - rates + 1e-12).all()
    inner = (missed > 0.02) & (missed < 0.98)
    np.testing.assert_allclose(tradeoff.false_negative_rate(privacy, missed[inner]), rates[inner], atol=1e-6)


def test_no_attack_on_simulated_releases_does_better():
    """The best attack there is, on its log-likelihood ratio, for a known contribution among nothing else."""
    q, sigma, steps, number, generator = 0.2, 1.0, 10, 100_000, np.random.default_rng()

    def score(points):
        return np.log((1 - q) + q * np.exp((2 * points - 1) / (2 * sigma**2))).sum(axis=0)

    out = score(sigma * generator.standard_normal((steps, number)))
    member = score(sigma * generator.standard_normal((steps, number)) + (generator.random((steps, number)) < q))
    privacy = tradeoff.profile([Event(q, sigma, steps)])
    for rate in (0.01, 0.1, 0.3):
        found = float((member > np.quantile(out, 1 - rate)).mean())
        error = 6 * math.sqrt(0.25 / number) * (1 + 3 / math.sqrt(rate))
        assert found <= float(tradeoff.true_positive_rate(privacy, rate)) + error
    assert float(tradeoff.true_positive_rate(privacy, 0.1)) < found * 1.5


def test_nothing_released_leaves_guessing_and_no_noise_leaves_nothing():
    nothing, everything = tradeoff.meaning([]), tradeoff.meaning([Event(0.1, 0.0)])
    assert nothing.advantage == 0
    assert nothing.bayes_risk == pytest.approx(0.5, abs=2e-3)
    assert nothing.found_at_one_in_a_hundred == pytest.approx(0.01)
    assert (everything.advantage, everything.found_at_one_in_a_thousand, everything.bayes_risk) == (1.0, 1.0, 0.0)


def test_a_confident_attacker_errs_less():
    privacy = tradeoff.profile([Event(1.0, 2.0)])
    assert tradeoff.bayes_risk(privacy, 0.01) < 0.01 + 1e-9 < tradeoff.bayes_risk(privacy) < 0.5
    with pytest.raises(InvalidArgumentError, match=r"^prior is"):
        tradeoff.bayes_risk(privacy, 1.0)
    with pytest.raises(InvalidArgumentError, match=r"^false_positive_rate is"):
        tradeoff.true_positive_rate(privacy, 1.5)


KINDS = {
    "sampled": ([Event(0.01, 1.0, 1000)], "add-remove"),
    "replaced": ([Event(0.02, 2.0, 300)], "replace-one"),
    "of several noises": ([Event(0.02, 2.0, 300), Event(0.05, 1.5, 20), Event(1.0, 20.0, 3)], "zero-out"),
    "fixed size": ([FixedSizeEvent(0.01, 2.0, 100)], "replace-one"),
    "full batch": ([Event(1.0, 9.0, 20)], "add-remove"),
}


@pytest.mark.parametrize(("events", "adjacency"), KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("delta", [1e-3, 1e-12])
def test_the_profile_is_never_below_the_single_answers_and_close(events, adjacency, delta):
    privacy = tradeoff.profile(events, adjacency=adjacency, delta=delta)
    assert privacy.epsilons[0] == 0
    assert privacy.deltas[-1] == pytest.approx(min(delta, 1e-5))
    assert (np.diff(privacy.deltas) <= 0).all()
    for place in (0, 5, 15, 25, -1):
        exact = composed_delta(events, epsilon=float(privacy.epsilons[place]), adjacency=adjacency)
        # Both are upper bounds, on different grids.
        assert exact * (1 - 5e-3) <= privacy.deltas[place] <= exact * 1.03


def test_a_meaning_comes_back_from_json():
    found = tradeoff.meaning([Event(0.02, 1.3, 200)])
    values = json.loads(json.dumps(found.to_dict()))
    assert set(values) == {"advantage", "tpr_at_fpr_0.1%", "tpr_at_fpr_1%", "bayes_risk", "profile"}
    assert tradeoff.from_dict(values) == found
    assert values["advantage"] == values["profile"]["delta"][0]


@pytest.mark.parametrize("epsilons", [[1.0, 0.5], [-0.1, 1.0], [0.0, math.inf], [math.nan]])
def test_epsilons_that_do_not_grow_are_refused(epsilons):
    with pytest.raises(InvalidArgumentError, match=r"^epsilons is"):
        composed_deltas([Event(0.1, 2.0)], epsilons=epsilons, likely=1e-5)


@pytest.mark.parametrize("pair", [(0.0, 0.3), (0.5, 1e-3), (2.0, 1e-5), (800.0, 0.0)])
def test_the_advantage_of_a_loose_profile_is_that_of_its_curve(pair):
    loose = tradeoff.PrivacyProfile(np.array([0.0, pair[0]]), np.array([1.0, pair[1]]))
    rates = np.linspace(0, 1, 100_001)
    assert tradeoff.advantage(loose) == pytest.approx((1 - rates - tradeoff.false_negative_rate(loose, rates)).max(), abs=1e-4)
