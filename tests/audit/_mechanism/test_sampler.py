from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import pytest

import privet
from plans import plan
from privet.audit._mechanism import sampler
from privet.noise import SecureSource
from privet.sampling import BallsInBins, FixedSize, FullBatch, Poisson, Shuffle, TruncatedPoisson

EXAMPLES, STEPS = 203, 400


@dataclass(frozen=True)
class PoissonRate(privet.sampling.Scheme):
    """Somebody else's: draws at one rate, accounted for as at another."""

    rate_drawn: float
    rate_claimed: float

    def expected_batch_size(self, examples):
        return self.rate_drawn * examples

    def draws(self, examples, words):
        return Poisson(self.rate_drawn * examples).draws(examples, words)

    def event(self, examples, noise_multiplier, count):
        return privet.accounting.Event(self.rate_claimed, noise_multiplier, count)


SCHEMES = {
    "poisson": (Poisson(20.3), "add-remove"),
    "poisson, rare": (Poisson(0.5), "add-remove"),
    "poisson, often": (Poisson(150), "add-remove"),
    "truncated": (TruncatedPoisson(20, cap=22), "add-remove"),
    "fixed": (FixedSize(20), "replace-one"),
    "full": (FullBatch(), "add-remove"),
    "bins": (BallsInBins(20.3), "add-remove"),
    "two bins": (BallsInBins(102), "add-remove"),
    "shuffle": (Shuffle(20), "zero-out"),
    "somebody's, a rate": (PoissonRate(0.1, 0.1), "add-remove"),
}


def plan_of(name):
    scheme, adjacency = SCHEMES[name]
    return plan(examples=EXAMPLES, sampling=scheme, steps=STEPS, delta=1e-3, adjacency=adjacency)


def drawn(name, steps=STEPS):
    return list(islice(SCHEMES[name][0].draws(EXAMPLES, SecureSource().words), steps))


@pytest.mark.parametrize("name", SCHEMES)
def test_a_scheme_passes_for_itself(name, holds_twice):
    holds_twice(lambda: {check.name: check.p_value for check in sampler.checks(plan_of(name), drawn(name))})


@pytest.mark.parametrize("claimed", [name for name in SCHEMES if "," not in name])
@pytest.mark.parametrize("done", [name for name in SCHEMES if "," not in name])
def test_a_scheme_does_not_pass_for_another(claimed, done):
    # Twenty, and up to 22, out of 203: the truncated scheme and the fixed size of 20 do differ, by the variance.
    checks = sampler.checks(plan_of(claimed), drawn(done))
    assert claimed == done or min(check.p_value for check in checks) < 1e-6 / len(checks)


def test_one_example_that_is_sampled_too_often_is_detected():
    often = [np.union1d(indices, [7]) for indices in drawn("poisson")]
    checks = {check.name: check.p_value for check in sampler.checks(plan_of("poisson"), often)}
    assert checks["sampling frequency per example"] < 1e-9


def test_less_than_an_epoch_can_be_checked():
    for name in ("bins", "shuffle"):
        found = sampler.checks(replace(plan_of(name), steps=3), drawn(name, 3))
        assert all(check.p_value > 1e-9 for check in found)


def test_a_registered_scheme_is_tested_against_its_events():
    scheme = PoissonRate(0.12, 0.1)
    indices = list(islice(scheme.draws(EXAMPLES, SecureSource().words), STEPS))
    checks = sampler.checks(replace(plan_of("poisson"), sampling=scheme), indices)
    assert {check.name: check.p_value for check in checks}["batch size, mean"] < 1e-9


def test_a_scheme_with_unknown_draws_is_refused():
    class Unknown(FixedSize):
        pass

    with pytest.raises(privet.errors.InvalidArgumentError, match=r"^plan\.sampling is 'Unknown'"):
        sampler.checks(replace(plan_of("fixed"), sampling=Unknown(20)), drawn("fixed"))
