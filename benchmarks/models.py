"""The models that steps are timed on, each with a loss and a batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.resnet import resnet18
from privet import models


class MeanEmbedding(nn.Module):
    """Embedding(10k, 128), the mean over 64 tokens, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(10_000, 128), nn.Linear(128, 2)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.embedding(tokens).mean(1))


@dataclass(frozen=True)
class Case:
    """A model, its batch, and how a batch is made."""

    name: str
    build: Callable[[], nn.Module]
    inputs: Callable[[], torch.Tensor]
    classes: int

    def batch(self) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.inputs()
        return x, torch.randint(0, self.classes, (len(x),))


def mlp() -> nn.Module:
    widths = (784, 1024, 1024, 10)
    layers: list[nn.Module] = []
    for width, following in pairwise(widths):
        layers += [nn.Linear(width, following), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def images(batch: int) -> Callable[[], torch.Tensor]:
    return lambda: torch.randn(batch, 1, 28, 28)


CASES = (
    Case("cnn 26K, B=256", lambda: models.build("cnn", (1, 28, 28), 10), images(256), 10),
    Case("tanh-cnn 71K, B=64", lambda: models.build("tanh-cnn", (1, 28, 28), 10), images(64), 10),
    Case("mlp 1.9M, B=512", mlp, lambda: torch.randn(512, 784), 10),
    Case("resnet-18 11.2M, B=32", resnet18, lambda: torch.randn(32, 3, 32, 32), 10),
    Case("embedding 1.3M, B=256, T=64", MeanEmbedding, lambda: torch.randint(0, 10_000, (256, 64)), 2),
)


def losses(model: Any, batch: Any) -> torch.Tensor:
    return F.cross_entropy(model(batch[0]), batch[1], reduction="none")
