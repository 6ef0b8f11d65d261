import pickle
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

import privet
from plans import plan
from privet import clipping, noise, sampling
from privet.accounting import Event
from privet.accounting.queries import composed_epsilon
from privet.errors import InvalidArgumentError
from privet.noise import Gaussian
from privet.schedules import Constant, Schedule

SETTINGS = {"first": 0.2}
N = 40


@dataclass(frozen=True)
class WarmUp(Constant):
    """Extends the constant schedule and is none; it reads a setting that a program may change."""

    def factors(self, total):
        return np.linspace(SETTINGS["first"], 1.0, total)


@dataclass(frozen=True)
class Given(Schedule):
    """Any factors."""

    values: object

    def factors(self, total):
        return self.values


@pytest.fixture(autouse=True)
def _settings(monkeypatch):
    monkeypatch.setitem(SETTINGS, "first", 0.2)


def of_the_multipliers(made, accountant="pld"):
    """Return the ε of the noise that the steps draw."""
    events = [Event(made.sampling_rate, multiplier) for multiplier in made.multipliers()]
    return composed_epsilon(events, delta=made.delta, adjacency=made.adjacency, accountant=accountant)


PARTS = {
    "noise": {"noise": Gaussian(2.3, schedule=WarmUp())},
    "fixed": {"noise": Gaussian(2.3, deviation="fixed"), "bound_schedule": WarmUp()},
}
each = pytest.mark.parametrize("parts", PARTS.values(), ids=PARTS)


@each
def test_a_schedule_that_extends_the_constant_one_is_accounted_for_as_what_it_does(parts):
    made = plan(steps=3, **parts)
    assert np.ptp(made.multipliers()) > 1
    assert made.multiplier_moves
    assert made.epsilon() == pytest.approx(of_the_multipliers(made), rel=1e-9)
    assert made.guarantee().epsilon == made.epsilon()
    assert any("WarmUp" in text for text in made.guarantee().declared.values())
    solved = plan(steps=3, **{**parts, "noise": replace(parts["noise"], multiplier=None)}).calibrate(2.0, accountant="rdp")
    assert 1.99 < of_the_multipliers(solved, "rdp") <= 2.0


@each
def test_factors_are_those_of_when_the_plan_was_made(parts):
    made = plan(steps=5, **parts)
    solved = plan(steps=5, **{**parts, "noise": replace(parts["noise"], multiplier=None)}).calibrate(2.0, accountant="rdp")
    before = [(each.epsilon(), each.multipliers().tolist(), each.bound_factors().tolist()) for each in (made, solved)]
    SETTINGS["first"] = 0.9
    after = [(each.epsilon(), each.multipliers().tolist(), each.bound_factors().tolist()) for each in (made, solved)]
    assert after == before
    copied = pickle.loads(pickle.dumps(made))
    assert (copied.epsilon(), copied.multipliers().tolist()) == before[0][:2]


def test_a_calibrated_plan_has_the_factors_that_it_was_calibrated_for():
    asked = plan(steps=5, noise=Gaussian(schedule=WarmUp()))
    SETTINGS["first"] = 0.9
    solved = asked.calibrate(2.0, accountant="rdp")
    assert solved.multipliers()[0] == pytest.approx(0.2 * solved.noise_multiplier)
    assert 1.99 < of_the_multipliers(solved, "rdp") <= 2.0


def test_a_training_draws_and_states_the_factors_of_when_the_plan_was_made():
    model = torch.nn.Linear(50, 40, bias=False)
    small = {"examples": N, "sampling": sampling.FullBatch(), "steps": 4, "delta": 1e-3, "clipping": clipping.Flat(1.0)}
    made = plan(**small, noise=Gaussian(2.0, schedule=WarmUp()))
    expected, epsilon = made.multipliers(), made.epsilon()
    training = privet.Training(
        made, model, lambda net, batch: net(batch[0]).sum(1), torch.optim.SGD(model.parameters(), lr=1.0),
        TensorDataset(torch.zeros(N, 50)),
    )  # fmt: skip
    SETTINGS["first"] = 0.9
    drawn, before = [], model.weight.detach().clone()
    for _ in training:
        drawn.append(((model.weight.detach() - before) * made.divisor).std().item())
        before = model.weight.detach().clone()
    assert drawn == pytest.approx(expected, rel=0.1)
    assert training.epsilon() == training.guarantee().epsilon == epsilon


def test_factors_that_a_step_could_not_use_are_refused_when_the_plan_is_made():
    with pytest.raises(InvalidArgumentError, match=r"^noise\.schedule is"):
        plan(steps=4, noise=Gaussian(2.3, schedule=Given(np.ones(3))))
    with pytest.raises(InvalidArgumentError, match=r"^bound_schedule is"):
        plan(steps=4, bound_schedule=Given([np.nan, 1, 1, 1]))
    with pytest.raises(InvalidArgumentError, match=r"^bound_schedule is 1e-13; .*multiplied by. clipping\.bound is"):
        plan(steps=4, bound_schedule=Given([1, 1, 1, 1e-13]))
    with pytest.raises(InvalidArgumentError, match=r"^the noise multiplier of a step is 2\.3e-05; .*between 0\.001"):
        plan(steps=4, noise=Gaussian(2.3, schedule=Given([1, 1e-5, 1, 1])))
    with pytest.raises(InvalidArgumentError, match=r"^the noise multiplier of a step is 23000000"):
        plan(steps=4, noise=Gaussian(2.3, deviation="fixed"), bound_schedule=Given([1, 1e-7, 1, 1]))


def test_a_bound_that_must_stay_refuses_what_only_extends_the_constant_schedule():
    with pytest.raises(InvalidArgumentError, match=r"^bound_schedule is WarmUp\(\); it must be left out with AdaptiveQuantile"):
        plan(clipping=clipping.AdaptiveQuantile(clipping.Flat(0.7)), bound_schedule=WarmUp())
    with pytest.raises(InvalidArgumentError, match=r"^bound_schedule is WarmUp\(\); it must be privet\.schedules\.Constant"):
        plan(sampling=sampling.CyclicPoisson(64, 4), noise=noise.Banded(bands=4, multiplier=2.0), bound_schedule=WarmUp())


def test_steps_are_solved_for_without_a_table_of_all_bounds(monkeypatch):
    """A bound that the noise follows does not enter ε, so the search asks for the factors of its answer alone."""
    asked = []
    monkeypatch.setattr(WarmUp, "factors", lambda self, total: asked.append(total) or np.ones(total))
    solved = plan(steps=None, bound_schedule=WarmUp()).calibrate(1.0)
    assert asked == [solved.total_steps]
