"""Interrupts of a training leave nothing of an example in the model or on the disk, and steps go on after them."""

import signal

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import privet

pytestmark = pytest.mark.filterwarnings("ignore:the model changes its own state")

N = 6


class Means(nn.Module):
    """Keeps a running mean of its input."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 1)
        self.register_buffer("mean", torch.zeros(2))

    def forward(self, x):
        found = self.layer(x - self.mean)
        self.mean.lerp_(x.detach().mean(0), 0.5)
        return found


def setup(directory=None, model=None, loss=lambda model, batch: model(batch[0])[:, 0], **options):
    model = model or Means()
    plan = privet.Plan(
        examples=N, sampling=privet.sampling.FullBatch(), steps=4, clipping=privet.clipping.Flat(1.0), delta=1e-3,
        noise=privet.noise.Gaussian(2.0),
    )  # fmt: skip
    data = TensorDataset(torch.full((N, 2), 100.0))
    return privet.Training(plan, model, loss, torch.optim.SGD(model.parameters(), lr=0.1), data, directory, **options)


def read_mean(directory):
    return torch.load(directory / "checkpoint.pt", weights_only=True)["model"].get("mean", torch.zeros(2)).tolist()


@pytest.mark.parametrize("method", ["loop", "ghost"])
def test_an_interrupt_leaves_no_example_in_the_model_or_the_checkpoint(method, tmp_path):
    def loss(model, batch):
        found = model(batch[0])[:, 0]
        if interrupts:
            signal.raise_signal(signal.SIGINT)
        return found

    interrupts = False
    training = setup(tmp_path / "run", loss=loss, method=method)
    interrupts = True
    with pytest.raises(KeyboardInterrupt):
        training.run()
    assert training.model.mean.tolist() == read_mean(tmp_path / "run") == [0, 0]
    assert training.steps_spent == 1
    interrupts = False
    training.run()
    assert training.steps_spent == 4
