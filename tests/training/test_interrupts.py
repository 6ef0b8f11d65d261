"""Interrupts of a training leave nothing of an example in the model or on the disk, and steps go on after them."""

import signal

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import privet
from one_layer import D, N, plan
from privet.training.loop import StepError


class Means(nn.Module):
    """Keeps a running mean of its input."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(D, 1)
        self.register_buffer("mean", torch.zeros(D))

    def forward(self, x):
        found = self.layer(x - self.mean)
        self.mean.lerp_(x.detach().mean(0), 0.5)
        return found


@pytest.fixture
def raising():
    """A signal whose handler raises an error that an example could raise, too."""

    def handle(*_):
        raise RuntimeError

    before = signal.signal(signal.SIGUSR1, handle)
    yield
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.filterwarnings("ignore:the model changes its own state")
@pytest.mark.parametrize(("number", "raised"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGUSR1, StepError)])
@pytest.mark.parametrize("method", ["loop", "ghost"])
def test_an_interrupt_leaves_no_example_in_the_model_or_the_checkpoint(method, number, raised, raising, tmp_path):
    def loss(model, batch):
        found = model(batch[0])[:, 0]
        if interrupts:
            signal.raise_signal(number)
        return found

    model, data, interrupts = Means(), TensorDataset(torch.full((N, D), 100.0)), False
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    training = privet.Training(plan(N), model, loss, optimizer, data, tmp_path, method=method)
    interrupts = True
    with pytest.raises(raised):
        training.run()
    saved = torch.load(tmp_path / "checkpoint.pt", weights_only=True)["model"]
    assert not model.mean.any()
    assert not saved.get("mean", torch.zeros(D)).any()
    assert training.steps_spent == 1
    interrupts = False
    training.run()
    assert training.steps_spent == 3
