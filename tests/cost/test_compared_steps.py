import copy
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from privet import clipping, cost
from privet.cost import steps
from privet.errors import UnsupportedModelError
from privet.gradients import per_example_gradients

RULE = clipping.Flat(0.3)


def network():
    torch.manual_seed(4)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2)).double()


def losses(model, batch):
    return 3 * (model(batch["x"]) - batch["y"]).square().sum(1)


def batch():
    torch.manual_seed(9)
    return {"x": torch.randn(7, 3, dtype=torch.float64), "y": torch.randn(7, 2, dtype=torch.float64), "scale": 2.0}


@pytest.fixture
def trained(monkeypatch):
    """The models that steps train, in the order of their creation."""
    made = []

    def kept(model):
        made.append(copy.deepcopy(model))
        return made[-1]

    monkeypatch.setattr(steps, "copy", SimpleNamespace(deepcopy=kept))
    return made


def moved(kind, trained, times=1):
    """Return the change of the parameters of a new network, over the learning rate."""
    model = network()
    with cost.step_of(kind, model, losses, batch(), RULE) as step:
        for _ in range(times):
            step()
    return {
        name: (before - after).detach() / steps._LEARNING_RATE
        for (name, before), after in zip(model.named_parameters(), trained[-1].parameters(), strict=True)
    }


def summed(weigh):
    gradients = per_example_gradients(network(), losses, batch())
    norms = sum(gradient.flatten(1).square().sum(1) for gradient in gradients.values()).sqrt()
    return {name: torch.tensordot(weigh(norms), gradient, dims=1) / 7 for name, gradient in gradients.items()}


WEIGHTS = {"plain": torch.ones_like, "clipped": lambda norms: (0.3 / norms).clamp(max=1)}


@pytest.mark.parametrize("kind", WEIGHTS)
def test_a_step_follows_the_mean_gradient(kind, trained):
    found, expected = moved(kind, trained), summed(WEIGHTS[kind])
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], rtol=1e-6, atol=1e-9)


def test_a_private_step_has_noise(trained):
    one, other = moved("private", trained), moved("private", trained)
    assert not any(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("kind", cost.KINDS)
def test_steps_accumulate_and_leave_the_model_unchanged(kind, trained):
    model = network()
    before = copy.deepcopy(model.state_dict())
    with cost.step_of(kind, model, losses, batch(), RULE) as step:
        step()
        first = copy.deepcopy(trained[-1].state_dict())
        step()
        assert not any(torch.equal(first[name], value) for name, value in trained[-1].state_dict().items())
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_frozen_parameters_stay(trained):
    def frozen():
        model = network()
        model[0].requires_grad_(False)
        return model

    for kind in cost.KINDS:
        with cost.step_of(kind, frozen(), losses, batch(), RULE) as step:
            step()
        assert torch.equal(trained[-1][0].weight, network()[0].weight)
        assert not torch.equal(trained[-1][2].weight, network()[2].weight)


def test_a_model_that_cannot_be_private_is_refused_except_in_the_plain_arm():
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).double()
    with cost.step_of("plain", model, losses, batch(), RULE) as step:
        step()
    with pytest.raises(UnsupportedModelError, match="BatchNorm1d"), cost.step_of("clipped", model, losses, batch(), RULE):
        pass
