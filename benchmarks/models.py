"""Models for timing steps, each with a loss and a batch."""

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
from privet.models.convolutional import cnn


class MeanEmbedding(nn.Module):
    """Embedding(10k, 128), the mean over 64 tokens, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(10_000, 128), nn.Linear(128, 2)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.embedding(tokens).mean(1))


class Recurrent(nn.Module):
    """Embedding(10k, 128), an LSTM over 64 tokens, and a linear layer on its last output."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.lstm = nn.Embedding(10_000, 128), nn.LSTM(128, 128, batch_first=True)
        self.head = nn.Linear(128, 2)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(self.embedding(tokens))[0][:, -1])


class Encoder(nn.Module):
    """Torch's encoder layers over vectors in place of embedded words, their mean, and a linear layer."""

    def __init__(self, layers: int, width: int, heads: int, inner: int) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, heads, inner, dropout=0.0, batch_first=True)
        self.layers, self.head = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False), nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(x).mean(1))


@dataclass(frozen=True)
class Case:
    """A model, its batch, and how a batch is made."""

    name: str
    build: Callable[[], nn.Module]
    inputs: Callable[[], torch.Tensor]
    classes: int

    @property
    def size(self) -> int:
        """Number of parameters; the model is built without allocating them."""
        with torch.device("meta"):
            return sum(parameter.numel() for parameter in self.build().parameters())

    def batch(self) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.inputs()
        return x, torch.randint(0, self.classes, (len(x),))


def mlp() -> nn.Module:
    widths = (784, 1024, 1024, 10)
    layers: list[nn.Module] = []
    for width, following in pairwise(widths):
        layers += [nn.Linear(width, following), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def inverted_residual(layout: torch.memory_format) -> tuple[Callable[[], nn.Module], Callable[[], torch.Tensor]]:
    """Return builders of a block of mobile networks (1×1, depthwise 5×5, 1×1) and of its maps, in a memory layout."""
    narrow, wide, side = 32, 96, 14

    def build() -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(narrow, wide, 1), nn.GroupNorm(8, wide), nn.ReLU(),
            nn.Conv2d(wide, wide, 5, padding=2, groups=wide), nn.GroupNorm(8, wide), nn.ReLU(),
            nn.Conv2d(wide, narrow, 1), nn.GroupNorm(8, narrow),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(narrow, 10),
        ).to(memory_format=layout)  # type: ignore[call-overload]  # fmt: skip

    return build, lambda: torch.randn(32, narrow, side, side).contiguous(memory_format=layout)


def images(batch: int) -> Callable[[], torch.Tensor]:
    return lambda: torch.randn(batch, 1, 28, 28)


CASES = (
    Case("cnn 26K, B=256", lambda: models.build("cnn", (1, 28, 28), 10), images(256), 10),
    Case("cnn 26K, channels first, B=256", lambda: cnn((1, 28, 28), 10), images(256), 10),
    Case("tanh-cnn 71K, B=64", lambda: models.build("tanh-cnn", (1, 28, 28), 10), images(64), 10),
    Case("mlp 1.9M, B=512", mlp, lambda: torch.randn(512, 784), 10),
    Case("resnet-18 11.2M, B=32", resnet18, lambda: torch.randn(32, 3, 32, 32), 10),
    Case("inverted residual 10K, B=32", *inverted_residual(torch.contiguous_format), 10),
    Case("inverted residual, channels last, B=32", *inverted_residual(torch.channels_last), 10),
    Case("embedding 1.3M, B=256, T=64", MeanEmbedding, lambda: torch.randint(0, 10_000, (256, 64)), 2),
    Case("lstm 1.4M, B=64, T=64", Recurrent, lambda: torch.randint(0, 10_000, (64, 64)), 2),
    Case("encoder 4×d128, B=64, T=64", lambda: Encoder(4, 128, 4, 512), lambda: torch.randn(64, 64, 128), 10),
    Case("encoder 2×d768, B=16, T=128", lambda: Encoder(2, 768, 12, 3072), lambda: torch.randn(16, 128, 768), 10),
)


def losses(model: Any, batch: Any) -> torch.Tensor:
    return F.cross_entropy(model(batch[0]), batch[1], reduction="none")
