import functools

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import TensorDataset

import privet
from one_layer import BOUND, RATE, SIGMA, D, N, Probe, linear_loss, plan, setup, stop_after
from privet.errors import InvalidArgumentError, UnsupportedModelError
from privet.training.state import MasterWeights

X = torch.randn(N, D, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
EXACT = plan(float(N), steps=20, multiplier=0.0)


class Mixed(nn.Module):
    """A float32 and a bfloat16 parameter; the loss is linear in both, so gradients do not depend on their rounding."""

    def __init__(self, precision=torch.bfloat16):
        super().__init__()
        self.w = nn.Parameter(torch.ones(D, dtype=precision))
        self.v = nn.Parameter(torch.ones(D))

    def forward(self, x):
        return (x * self.w).float().sum(1) + 0.5 * (x.float() * self.v).sum(1)


def train(model, optimizer, directory=None, the_plan=EXACT, **options):
    return privet.Training(the_plan, model, linear_loss, optimizer, TensorDataset(X), directory, **options)


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=3e-3, momentum=0.5)


def adam(model):
    return torch.optim.AdamW(model.parameters(), lr=3e-4)


def accumulating(model):
    return torch.optim.Adagrad(model.parameters(), lr=1e-3)


@functools.cache
def released_by_a_float32_model(make):
    model = Mixed(torch.float32)
    train(model, make(model)).run()
    return model


@pytest.mark.parametrize("make", [sgd, adam, accumulating])
def test_updates_too_small_for_bfloat16_add_up_as_in_float32(make):
    """Each of the 20 updates is smaller than half of the distance between bfloat16 numbers at 1."""
    precise, model = released_by_a_float32_model(make), Mixed()
    training = train(model, make(model))
    first = next(iter(training))
    assert first.number == 1
    assert torch.equal(model.w, torch.ones(D, dtype=torch.bfloat16))
    training.run()
    assert model.w.dtype == torch.bfloat16
    moved = (precise.w.detach() - 1).abs()
    assert float(moved.max()) > 2**-8
    torch.testing.assert_close(model.w.float(), precise.w.to(torch.bfloat16).float(), rtol=0, atol=2**-8)
    torch.testing.assert_close(training.state_dict()["state"]["masters"]["w"], precise.w.detach(), rtol=1e-5, atol=2e-6)
    torch.testing.assert_close(model.v, precise.v, rtol=1e-5, atol=2e-6)


def test_the_model_keeps_its_memory_names_and_precision():
    model = Mixed()
    places, before = [p.data_ptr() for p in model.parameters()], {n: v.dtype for n, v in model.state_dict().items()}
    train(model, adam(model)).run()
    assert [p.data_ptr() for p in model.parameters()] == places
    assert {n: v.dtype for n, v in model.state_dict().items()} == before
    assert all(p.grad is None for p in model.parameters())


def test_the_noise_of_a_step_reaches_the_master_unrounded():
    """The float32 master moves by noise of the plan's standard deviation; α is 6e-7."""
    torch.manual_seed(0)
    width = 4000

    def move():
        model = Probe(width).to(torch.bfloat16)
        training = setup(plan(steps=1), torch.zeros(N, width, dtype=torch.bfloat16), model=model)
        training.run()
        return training.state_dict()["state"]["masters"]["w"] / RATE * training.plan.divisor

    found = [move() for _ in range(2)]
    deviations = [abs(float(moved.std()) / (SIGMA * BOUND) - 1) for moved in found]
    assert min(deviations) < 5 / (2 * width) ** 0.5
    assert all(len(moved.unique()) > 0.9 * width for moved in found)  # bfloat16 has far fewer numbers in that range


@pytest.mark.parametrize("make", [sgd, adam])
def test_a_run_resumes_with_its_masters_and_the_precision_of_the_optimizer(make, tmp_path):
    precise, model = released_by_a_float32_model(make), Mixed()
    training = train(model, make(model), tmp_path)
    stop_after(training, 7)
    again = Mixed()
    optimizer = make(again)
    resumed = privet.Training.resume(tmp_path, again, linear_loss, optimizer, TensorDataset(X))
    kept = [value for state in optimizer.state.values() for name, value in state.items() if name != "step"]
    assert kept
    assert {value.dtype for value in kept} == {torch.float32}
    resumed.run()
    torch.testing.assert_close(resumed.state_dict()["state"]["masters"]["w"], precise.w.detach(), rtol=1e-5, atol=2e-6)


def test_what_else_changes_a_parameter_takes_effect():
    model = Mixed()
    training = train(model, sgd(model))
    next(iter(training))
    with torch.no_grad():
        model.w[0] = 3.0
    before = training.state_dict()["state"]["masters"]["w"].clone()
    next(iter(training))
    after = training.state_dict()["state"]["masters"]["w"]
    assert float(after[0]) == pytest.approx(3.0, abs=1e-2)
    assert float((after[1:] - before[1:]).abs().max()) < 1e-2


def test_a_host_that_steps_the_optimizer_is_refused_before_anything_is_spent():
    model = Mixed()
    training = train(model, sgd(model))
    with pytest.raises(UnsupportedModelError, match=r"parameter w is not float32.*training\.run"):
        training.releases()
    assert training.steps_spent == 0


def test_a_bfloat16_average_is_refused():
    model = Mixed()
    with pytest.raises(InvalidArgumentError, match=r"of w in torch\.bfloat16"):
        train(model, sgd(model), average=AveragedModel(model))


def test_float32_parameters_have_no_masters():
    model = Mixed(torch.float32)
    training = train(model, sgd(model))
    assert "masters" not in training.state_dict()["state"]
    training.releases()


@pytest.mark.parametrize("state", [{}, {"w": torch.zeros(D, dtype=torch.bfloat16)}, {"w": torch.zeros(D + 1)}])
def test_masters_of_another_model_are_refused(state):
    model = Mixed()
    masters = MasterWeights(dict(model.named_parameters()), sgd(model))
    assert masters.names == ("w",)
    with pytest.raises(InvalidArgumentError, match="belongs to another model"):
        masters.load_state_dict(state)
