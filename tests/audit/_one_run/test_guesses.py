import math
from statistics import mean

import numpy as np
import pytest
from scipy import optimize, stats

import privet
from privet.accounting.classic import gaussian
from privet.audit._one_run.guesses import bounds, epsilon_by_counting, epsilon_by_trade_off
from privet.audit._one_run.membership import simulate_ideal_attack
from privet.clipping import Flat
from privet.errors import InvalidArgumentError
from privet.noise import Gaussian
from privet.sampling import FullBatch, Poisson

DELTA = 1e-5


def scores(mu, canaries):
    """Return coins, and the optimal scores for one Gaussian mechanism."""
    generator = np.random.default_rng()
    coins = generator.random(canaries) < 0.5
    return coins * mu + generator.standard_normal(canaries), coins


@pytest.mark.parametrize("mu", [1.0])
def test_the_bounds_have_their_confidence_level(mu):
    truth, runs, confidence, wrong = gaussian.epsilon(mu, DELTA), 40, 0.9, np.zeros(2)
    for _ in range(runs):
        found = bounds(*scores(mu, 200), delta=DELTA, confidence=confidence)
        wrong += np.array([found.epsilon, found.epsilon_f_dp]) > truth
    for count in wrong:
        assert stats.binom(runs, 1 - confidence).sf(count - 1) >= 1e-6


@pytest.mark.parametrize("mu", [0.5, 1.5])
def test_the_trade_off_bound_is_valid_for_a_tight_case_with_one_guess(mu):
    """The worst canaries are independent, so the number of correct guesses is binomial, and the level must hold for it too."""
    guesses, alpha = 200, 0.05
    law = stats.binom(guesses, stats.norm.cdf(mu / 2))
    least = next(
        k for k in range(guesses + 1) if epsilon_by_trade_off(guesses, k, guesses, DELTA, alpha) > gaussian.epsilon(mu, DELTA)
    )
    assert law.sf(least - 1) <= alpha


def test_pure_privacy_is_refuted_by_the_binomial_distribution():
    """With δ = 0, the counting bound is that of guesses which are correct with probability e^ε/(1 + e^ε) each."""
    found = epsilon_by_counting(100, 90, 100, 1e-300, 0.05)
    assert stats.binom(100, 1 / (1 + np.exp(-found))).sf(89) == pytest.approx(0.05, rel=1e-6)


def test_more_correct_guesses_prove_more_and_half_prove_nothing():
    for bound in (epsilon_by_counting, epsilon_by_trade_off):
        found = [bound(100, correct, 500, DELTA, 0.05) for correct in (50, 70, 90, 100)]
        assert found == sorted(found)
        assert found[0] == 0.0
        assert found[-1] > 1.0


def refuted_by_counting(canaries, guesses, correct, epsilon, delta):
    """The p-value as Steinke et al. list it in Appendix D: a loop over the tail."""
    law = stats.binom(guesses, 1 / (1 + math.exp(-epsilon)))
    worst = tail = 0.0
    for i in range(1, correct + 1):
        tail += law.pmf(correct - i)
        worst = max(worst, tail / i)
    return law.sf(correct - 1) + 2 * canaries * delta * worst


def refuted_by_trade_off(canaries, guesses, correct, mu, level):
    """Algorithm 3 of Mahloujifar et al., with the inverse trade-off curve of two normal laws spelled out."""
    below, above = level * (guesses - correct) / canaries, level * correct / canaries
    for i in reversed(range(correct)):
        new = max(below, stats.norm.cdf(stats.norm.ppf(above) - mu))
        above = min(1.0, above + i / (guesses - i) * (new - below))
        below = new
    return above + below > guesses / canaries


@pytest.mark.parametrize(("canaries", "guesses", "correct"), [
    (100, 100, 90), (1000, 100, 95), (1000, 20, 20), (1000, 1000, 700), (10_000, 400, 330), (10_000, 100, 100),
])  # fmt: skip
@pytest.mark.parametrize("level", [0.05, 1e-3])
def test_bounds_are_where_the_papers_tests_stop_rejecting(canaries, guesses, correct, level):
    found = epsilon_by_counting(guesses, correct, canaries, DELTA, level)
    if found > 0:
        assert refuted_by_counting(canaries, guesses, correct, found - 1e-5, DELTA) <= level
    assert refuted_by_counting(canaries, guesses, correct, found + 1e-5, DELTA) > level
    proved = epsilon_by_trade_off(guesses, correct, canaries, DELTA, level)
    mu = optimize.brentq(lambda mu: gaussian.epsilon(mu, DELTA) - proved, 1e-6, 30.0) if proved > 0 else 0.0
    if mu > 0:
        assert refuted_by_trade_off(canaries, guesses, correct, mu * (1 - 1e-4), level)
    assert not refuted_by_trade_off(canaries, guesses, correct, mu * (1 + 1e-4) + 1e-6, level)


# By an independent program, with 1,000 canaries and 95 % confidence, the mean of five: sampling rate, steps, ε → the bounds.
MEASURED = [
    (1.0, 1, 4.0, 1.37, 2.00),
    (0.01, 1000, 4.0, 1.10, 1.59),
    (0.05, 500, 8.0, 2.38, 3.59),
]
MEASURED_TOO = [
    (0.01, 1000, 1.0, 0.13, 0.20), (0.01, 1000, 2.0, 0.42, 0.61), (0.01, 1000, 8.0, 1.48, 2.18), (0.05, 500, 4.0, 1.31, 1.87),
]  # fmt: skip


@pytest.mark.parametrize(
    ("rate", "steps", "epsilon", "counting", "trade_off"),
    [MEASURED[0], *(pytest.param(*row, marks=pytest.mark.slow) for row in (*MEASURED[1:], *MEASURED_TOO))],
)
def test_an_ideal_adversary_matches_published_results(rate, steps, epsilon, counting, trade_off):
    """Means of five of bounds that scatter by a fifth, with another number of guesses to choose from.

    Here, too, the mean of five is compared: single simulations scatter by up to a tenth, and would miss once in a hundred runs.
    """
    sampling = FullBatch() if rate == 1 else Poisson(1000 * rate)
    plan = privet.Plan(examples=1000, sampling=sampling, steps=steps, clipping=Flat(1.0), delta=DELTA).calibrate(epsilon)
    found = [simulate_ideal_attack(plan, 1000) for _ in range(5)]
    assert mean(each.epsilon for each in found) == pytest.approx(counting, rel=0.35, abs=0.35)
    assert mean(each.epsilon_f_dp for each in found) == pytest.approx(trade_off, rel=0.35, abs=0.35)
    assert all(each.epsilon <= each.epsilon_f_dp < epsilon for each in found)


@pytest.mark.parametrize(("change", "name"), [
    ({"delta": 0.0}, "delta"), ({"confidence": 1.0}, "confidence"), ({"shares": (0.6,)}, "shares"),
    ({"included": [True]}, "scores"),
])  # fmt: skip
def test_arguments_out_of_range_are_refused_by_name(change, name):
    arguments = {"scores": [0.0, 1.0, 2.0], "included": [True, False, True], "delta": DELTA} | change
    with pytest.raises(InvalidArgumentError, match=f"^{name} is"):
        bounds(**arguments)


def test_an_ideal_adversary_detects_a_plan_with_little_noise():
    plan = privet.Plan(examples=100, sampling=FullBatch(), steps=1, clipping=Flat(1.0), delta=DELTA, noise=Gaussian(0.05))
    assert simulate_ideal_attack(plan, 200).epsilon > 2.5
