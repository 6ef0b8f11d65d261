"""A network for tables: embeddings of categories, a fixed expansion of numbers, and a small network beside a linear model."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from privet.errors import InvalidArgumentError, count, positive
from privet.models.dense import activation_layer, zero_linear


class TableNetwork(nn.Module):
    """A linear model plus one hidden layer, on the features of a table.

    A category is one feature per value: 1 for its value, 0 for the others. The column of a weight matrix for a value is the
    embedding of that value, so a linear layer adds up the embeddings of a row's categories and the weighted numbers.

    `numbers` are the positions of the features that are numbers scaled to [-1, 1], each of which also gets the cosines
    cos(π·k·(x + 1)/2) for k = 1 … `waves`. A width of 0 is the linear model alone; the activation is "tanh" or "relu".

    The hidden layer is multiplied by `scale`, and the weights after it start larger by as much: the initial function is the same.
    Noise of one size in all weights then moves the outputs less.
    """

    def __init__(
        self, features: int, outputs: int, numbers: Sequence[int], waves: int, width: int, activation: str, scale: float
    ) -> None:
        super().__init__()
        expanded = features + waves * len(numbers)
        self.numbers, self.waves = list(numbers), waves
        self.linear = zero_linear(expanded, outputs)
        self.embedding = nn.Linear(expanded, width) if width else None
        self.activation = activation_layer(activation)
        self.output = nn.Linear(width, outputs, bias=False) if width else None
        self.scale = scale
        if self.output is not None and scale != 1:
            with torch.no_grad():
                self.output.weight /= scale

    def forward(self, inputs: Tensor) -> Tensor:
        """Return outputs (B, outputs) of features (B, D)."""
        features = inputs.flatten(1)
        positions = torch.tensor(self.numbers, dtype=torch.int64, device=features.device)
        frequencies = math.pi / 2 * torch.arange(1, self.waves + 1, dtype=features.dtype, device=features.device)
        waves = ((features.index_select(1, positions) + 1)[:, :, None] * frequencies).cos().flatten(1)
        expanded = torch.cat((features, waves), dim=1)
        linear: Tensor = self.linear(expanded)
        if self.embedding is None or self.output is None:
            return linear
        hidden: Tensor = self.output(self.activation(self.embedding(expanded)) * self.scale)
        return linear + hidden


def table(
    input_shape: tuple[int, ...],
    classes: int,
    *,
    numbers: Sequence[int] | None = None,
    waves: int = 4,
    width: int = 64,
    activation: str = "tanh",
    scale: float = 1.0,
) -> TableNetwork:
    """Return a network for tables; see `TableNetwork`. Without `numbers`, all flattened features are numbers."""
    features = math.prod(input_shape)
    places = range(features) if numbers is None else numbers
    if not all(isinstance(place, int) and 0 <= place < features for place in places):
        raise InvalidArgumentError("numbers", numbers, f"positions of features, from 0 to {features - 1}")
    count("waves", waves, minimum=0)
    positive("scale", scale)
    return TableNetwork(features, classes, tuple(places), waves, count("width", width, minimum=0), activation, scale)
