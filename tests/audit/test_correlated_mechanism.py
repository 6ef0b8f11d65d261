from dataclasses import replace

import numpy as np
import pytest
from scipy.linalg import toeplitz

import plans
from privet import noise, sampling
from privet.audit import mechanism
from privet.audit._mechanism import whitebox
from privet.audit.production import train

KINDS = {
    "bands": (noise.Banded(bands=4), sampling.CyclicPoisson(30, cycle=6)),
    "buffers": (noise.BufferedToeplitz(2), sampling.FixedOrder(30)),
    "tree": (noise.Tree(), sampling.BallsInBins(30)),
}
EVERY = pytest.mark.parametrize("name", KINDS)


def plan(name):
    kind, scheme = KINDS[name]
    return plans.plan(examples=600, sampling=scheme, steps=120, delta=1e-4, noise=kind).calibrate(4.0)


def audit(name, trainer=train):
    """Audit a plan; few parameters and steps with many canaries take the least time."""
    return mechanism(plan(name), trainer, names=("weight", "bias"), observations=10_000)


@pytest.fixture(autouse=True)
def many_canaries(monkeypatch):
    monkeypatch.setattr(whitebox, "_COORDINATES", 1024)
    monkeypatch.setattr(whitebox, "_FEWEST_STEPS", 25)


@pytest.mark.parametrize("name", ["buffers", *(pytest.param(name, marks=pytest.mark.slow) for name in ("bands", "tree"))])
def test_a_correct_trainer_passes_and_the_bound_is_close(name):
    found = audit(name)
    assert found.passed, found.failed
    assert 0.6 * found.epsilon_claimed < found.epsilon_lower_bound <= 1.02 * found.epsilon_claimed
    assert any("all steps" in note for note in found.notes)


@pytest.mark.parametrize("name", ["bands", *(pytest.param(name, marks=pytest.mark.slow) for name in ("buffers", "tree"))])
def test_noise_that_is_a_tenth_too_small_is_noticed(name):
    def trainer(probe):
        smaller = replace(probe.plan.noise, multiplier=0.9 * probe.plan.noise.multiplier)
        return train(replace(probe, plan=replace(probe.plan, noise=smaller)) if probe.plan.noise_multiplier else probe)

    found = audit(name, trainer)
    assert {check for check in found.failed if "noise deviation" in check}


def test_independent_noise_in_place_of_correlated_noise_is_noticed():
    def trainer(probe):
        multipliers = float(probe.plan.multipliers()[0])
        return train(replace(probe, plan=replace(probe.plan, noise=noise.Gaussian(multipliers, non_private=not multipliers))))

    found = audit("bands", trainer)
    assert {check for check in found.failed if check.startswith("NOISE")}


def test_examples_that_take_part_outside_their_cycle_are_noticed():
    def trainer(probe):
        scheme = probe.plan.sampling
        if isinstance(scheme, sampling.CyclicPoisson):
            shorter = replace(probe.plan, sampling=sampling.CyclicPoisson(scheme.batch_size, cycle=scheme.cycle - 1))
            return train(replace(probe, plan=shorter))
        return train(probe)

    found = audit("bands", trainer)
    assert {check for check in found.failed if "one place in the cycle" in check}


@EVERY
def test_whitening_makes_noise_independent(name):
    made = plan(name)
    whitening = made.noise.whitening(45)
    np.testing.assert_allclose(whitening, np.tril(whitening), rtol=1e-9)
    np.testing.assert_allclose(np.linalg.norm(np.linalg.inv(whitening), axis=1), made.noise.spread(45), rtol=1e-9)
    if not isinstance(made.noise, noise.Tree):
        np.testing.assert_allclose(whitening, toeplitz(made.noise.strategy.column(45), np.zeros(45)), rtol=1e-9)
