import runpy
from dataclasses import replace
from pathlib import Path

import numpy as np
import plain_trainer
import pytest

from plans import plan
from privet import audit
from privet.audit._mechanism import whitebox
from privet.audit.production import train
from privet.clipping import Flat, Layerwise
from privet.clipping.clipped_sum import ClippedSum
from privet.errors import InvalidArgumentError
from privet.gradients.engine import RunningSum
from privet.noise import Gaussian
from privet.sampling import Poisson
from privet.training import loop

PLAN = plan(examples=400, sampling=Poisson(20), steps=200, delta=1e-4)
FEW = 20_000


def test_a_correct_trainer_passes():
    found = audit.mechanism(PLAN, plain_trainer.train, observations=FEW)
    assert found.passed, found
    assert 0.5 * found.epsilon_claimed <= found.epsilon_lower_bound <= found.epsilon_claimed
    assert 0 < found.epsilon_lower_bound_nonparametric <= found.epsilon_claimed
    assert found.noise_multiplier_interval[0] <= 2.3 <= found.noise_multiplier_interval[1]


@pytest.mark.filterwarnings("ignore")
def test_opacus_keeps_its_plan_except_for_examples_that_are_not_finite():
    pytest.importorskip("opacus")
    example = Path(__file__).parents[2] / "examples" / "audit_opacus.py"
    found = audit.mechanism(PLAN, runpy.run_path(str(example))["train"], observations=FEW)
    assert found.failed == ("SENS: one example that is NaN", "SENS: one example that is infinite")
    assert found.epsilon_lower_bound <= found.epsilon_claimed


@pytest.mark.parametrize("fault", plain_trainer.TRAINERS)
def test_a_faulty_trainer_fails(fault):
    # Empty batches are frequent enough only for a small batch size.
    audited = replace(PLAN, sampling=Poisson(2)) if fault == "no noise on an empty draw" else PLAN
    found = audit.mechanism(audited, plain_trainer.TRAINERS[fault], observations=FEW)
    assert str(found).startswith("FAILED: ε ≥ ")
    if fault in ("no noise", "half the noise", "twice the bound", "nothing is clipped"):  # gross, so the lower bound shows it
        assert found.epsilon_lower_bound > found.epsilon_claimed


def quieter(clipped, *arguments, **_):
    return release(ClippedSum(clipped.tensors, clipped.sensitivity / 2, clipped.norms, clipped.part), *arguments)


def silent_about_one(clipped, token, source, divisor, *past, **_):
    noised = release(clipped, token, source, divisor, *past)
    name = next(iter(noised.tensors))
    return replace(noised, tensors={**noised.tensors, name: clipped.tensors[name] / divisor})


def longer(*arguments):
    summed = total_of(*arguments)
    return replace(summed, tensors={name: 1.2 * tensor for name, tensor in summed.tensors.items()})


release, total_of = loop.release, RunningSum.to_clipped_sum


def draw_twice(self, examples, words):
    generator = np.random.default_rng(0)
    while True:
        indices = np.flatnonzero(generator.random(examples) < self.rate(examples))
        yield indices
        yield indices


PATCHES = {
    "half the noise": (loop, "release", quieter, "NOISE"),
    "a parameter without noise": (loop, "release", silent_about_one, "NOISE"),
    "sums a fifth too long": (RunningSum, "to_clipped_sum", longer, "SENS"),
    "samples that are repeated": (Poisson, "draws", draw_twice, "SAMPLER"),
}


@pytest.mark.parametrize("fault", PATCHES)
def test_a_fault_in_the_production_path_is_detected(fault, monkeypatch):
    monkeypatch.setattr(whitebox, "_FEWEST_STEPS", 25)
    *place, family = PATCHES[fault]
    monkeypatch.setattr(*place)
    found = audit.mechanism(PLAN, train, names=("weight", "bias"), observations=10_000)
    assert any(name.startswith(family) for name in found.failed)


@pytest.mark.parametrize(("found", "attempts", "failed"), [
    ([1e-9, 0.3], [1, 10], ()),
    ([1e-9, 1e-9], [1, 10], ("noise",)),
    ([1e-15, 0.3], [1], ("noise",)),
    ([1e-7, 0.3], [1], ()),
])  # fmt: skip
def test_a_check_that_may_have_failed_by_chance_is_repeated_with_ten_times_the_observations(found, attempts, failed, monkeypatch):
    seen, p_values = [], iter(found)

    def gather(plan, names, trainer, observations, alpha, report):
        seen.append(observations)
        checks = (audit.Check("noise", "", next(p_values)), *(audit.Check(str(i), "", 0.5) for i in range(49)))
        influence = whitebox.influence.Influence(1.0, 0.01, 1.0, 100, 100)
        return checks, [influence], whitebox.influence.ErrorRates(0, 0, 0, 0, np.ones(1))

    monkeypatch.setattr(whitebox, "_gather", gather)
    assert audit.mechanism(PLAN, plain_trainer.train, observations=FEW).failed == failed
    assert seen == [FEW * attempt for attempt in attempts]


def test_a_plan_without_privacy_is_refused():
    with pytest.raises(InvalidArgumentError, match="a plan with a finite ε"):
        audit.mechanism(replace(PLAN, noise=Gaussian(0, non_private=True)))


def test_patterns_need_parameter_names():
    rule = Layerwise({"body.*": Flat(0.7), ".*": Flat(0.2)})
    with pytest.raises(InvalidArgumentError, match="names is None"):
        audit.mechanism(replace(PLAN, clipping=rule), plain_trainer.train)
