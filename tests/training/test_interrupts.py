"""Interrupts of a training leave nothing of an example in the model or on the disk, and steps go on after them."""

import signal

import pytest
import torch
from one_layer import D, N, plan, setup
from torch import nn


class Means(nn.Module):
    """Keeps a running mean of its input."""

    interrupts = False

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(D, 1)
        self.register_buffer("mean", torch.zeros(D))

    def forward(self, x):
        found = self.layer(x - self.mean)
        self.mean.lerp_(x.detach().mean(0), 0.5)
        if self.interrupts:
            signal.raise_signal(signal.SIGINT)
        return found[:, 0]


@pytest.mark.filterwarnings("ignore:the model changes its own state")
@pytest.mark.parametrize("method", ["loop", "ghost"])
def test_an_interrupt_leaves_no_example_in_the_model_or_the_checkpoint(method, tmp_path):
    training = setup(plan(N), torch.full((N, D), 100.0), tmp_path, Means(), method=method)
    Means.interrupts = True
    try:
        with pytest.raises(KeyboardInterrupt):
            training.run()
    finally:
        Means.interrupts = False
    saved = torch.load(tmp_path / "checkpoint.pt", weights_only=True)["model"]
    assert not training.model.mean.any()
    assert not saved.get("mean", torch.zeros(1)).any()
    assert training.steps_spent == 1
    training.run()
    assert training.steps_spent == 3
