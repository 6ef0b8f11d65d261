import dataclasses

import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtr

import privet
from privet.audit._mechanism import influence
from privet.audit.observations import Noise, Observations
from privet.clipping import Flat
from privet.noise import Gaussian
from privet.sampling import Poisson

PLAN = privet.Plan(examples=60_000, sampling=Poisson(600), steps=1000, clipping=Flat(0.7), delta=1e-5).calibrate(4.0)


def simulated(shifts, canaries, ratio=1.0, noise=1.0, factors=(1.0,)):
    """Return observations of a trainer with `ratio` times the influence of canaries and `noise` times the noise."""
    generator = np.random.default_rng()
    steps = len(shifts)
    scores, references = noise * generator.standard_normal((2, steps, canaries))
    scores += ratio * noise * np.asarray(shifts)[:, None] * generator.choice(factors, (steps, canaries))
    present = np.ones((steps, canaries), dtype=bool)
    quiet = Noise(references, present, {"weight": slice(0, canaries)})
    return Observations(quiet, scores, references, present, present, np.asarray(shifts, dtype=float), np.asarray(factors))


CONSTANT, SCHEDULED = np.full(40, 0.8), np.geomspace(0.3, 2.0, 40)


@pytest.mark.parametrize(("ratio", "shifts"), [
    (0.5, CONSTANT), (1.0, SCHEDULED), (1.7, CONSTANT),
    *(pytest.param(*pair, marks=pytest.mark.slow) for pair in ((0.5, SCHEDULED), (1.0, CONSTANT), (1.7, SCHEDULED))),
])  # fmt: skip
def test_bounds_have_their_confidence_level(ratio, shifts):
    alpha, runs, above, free = 0.05, 100, 0, 0
    for _ in range(runs):
        seen = simulated(shifts, 50, ratio, noise=1.3)
        above += influence.estimate_influence(seen).bound(alpha) > ratio
        free += influence.measure_error_rates(seen, alpha).bound(alpha) > ratio
    for wrong in (above, free):
        assert stats.binom(runs, alpha).sf(wrong - 1) >= 1e-6


def test_a_million_scores_bound_epsilon_to_five_percent():
    seen = simulated(np.full(2000, 1 / PLAN.noise_multiplier), 250)
    claimed = PLAN.epsilon()
    normal = influence.scaled_epsilon(PLAN, influence.estimate_influence(seen).bound(0.5e-6))
    free = influence.scaled_epsilon(PLAN, influence.measure_error_rates(seen, 1e-6).bound(1e-6))
    assert 0.95 * claimed <= normal <= claimed
    assert 0.9 * claimed <= free <= normal


def test_epsilon_is_the_plans_at_its_own_influence_and_grows_with_it():
    found = [influence.scaled_epsilon(PLAN, ratio) for ratio in (0.0, 0.5, 1.0, 1.1, 1e9)]
    assert found[0] == 0
    assert found[2] == pytest.approx(PLAN.epsilon(), rel=1e-6)
    assert found == sorted(found)
    assert found[-1] == np.inf


@pytest.mark.parametrize("ratio", [0.3, 1.0, 2.5])
@pytest.mark.parametrize("shifts", [np.array([0.7]), np.array([0.3, 0.8, 2.0])], ids=str)
def test_the_smallest_ratio_belongs_to_the_best_test(ratio, shifts):
    for threshold in (-1.0, 0.0, 1.5):
        own = ratio * shifts
        alarms = ndtr(-threshold / own - own / 2).mean()
        missed = ndtr(threshold / own - own / 2).mean()
        assert influence.smallest_ratio(alarms, missed, shifts) == pytest.approx(ratio, rel=1e-4)
    assert influence.smallest_ratio(0.5, 0.5, shifts) == 0.0


def test_estimated_norms_may_let_more_through():
    factors = np.array([0.8, 1.0, 1.4])
    seen = simulated(np.full(500, 0.7), 50, factors=factors)
    assert influence.estimate_influence(seen).ratio == pytest.approx(1.0, abs=0.1)
    assert influence.measure_error_rates(seen, 1e-3).bound(1e-3) <= 1.0


def test_without_noise_the_influence_is_infinite():
    seen = simulated(np.full(20, 0.7), 10, noise=1e-300)
    still = Observations(**{**vars(seen), "scores": np.ones((20, 10)), "references": np.zeros((20, 10))})
    assert influence.estimate_influence(still).bound(1e-6) == np.inf
    assert influence.scaled_epsilon(PLAN, np.inf) == np.inf
    assert influence.estimate_influence(still).p_value() == 0.0


def test_canaries_that_never_took_part_prove_nothing():
    seen = simulated(np.full(20, 0.7), 10)
    nobody = Observations(**{**vars(seen), "taking_part": np.zeros((20, 10), dtype=bool)})
    assert influence.estimate_influence(nobody).bound(0.05) == 0.0
    assert influence.measure_error_rates(nobody, 0.05).bound(0.05) == 0.0


def test_plans_are_scaled_for_every_kind_of_noise():
    plan = privet.Plan(examples=100, sampling=Poisson(10), steps=10, clipping=Flat(0.7), delta=1e-3, noise=Gaussian(2.0))
    assert influence.scaled_epsilon(plan, 2.0) == pytest.approx(
        dataclasses.replace(plan, noise=Gaussian(1.0)).epsilon(), rel=1e-6
    )
