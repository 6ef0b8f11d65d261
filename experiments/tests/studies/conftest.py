"""A small model with a batch whose gradients have very different norms."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F


@pytest.fixture
def model():
    with torch.random.fork_rng():
        torch.manual_seed(2)
        return nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 3)).double()


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(5)
    inputs = torch.randn(24, 6, generator=generator, dtype=torch.float64) * torch.logspace(-1, 1, 24)[:, None]
    return inputs, torch.randint(0, 3, (24,), generator=generator)


@pytest.fixture
def loss_fn():
    return lambda model, batch: F.cross_entropy(model(batch[0]), batch[1], reduction="none")
