"""Small problems that show what clipping can do to gradient flow, with enough parameters to fit every target exactly."""

from __future__ import annotations

__all__ = ["Problem", "TwoBlocks", "network", "opposed", "outlier", "problems", "squared"]

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from privet.clipping import Flat, Layerwise
from privet_experiments.tangent_kernel.kernel import Criterion


@dataclass(frozen=True, eq=False)
class Problem:
    """A model and examples to fit, with bounds that clip, and steps that are small and many enough to follow the flow.

    Args:
        name: what to call it.
        model: in float64.
        criterion: (outputs, targets) → (B,) losses.
        inputs: of B examples.
        targets: (B, …).
        flat: a rule with one group whose bound is small here.
        layerwise: a rule with several.
        learning_rate: η.
        steps: how many.
    """

    name: str
    model: nn.Module
    criterion: Criterion
    inputs: Tensor
    targets: Tensor
    flat: Flat
    layerwise: Layerwise
    learning_rate: float
    steps: int


class TwoBlocks(nn.Module):
    """A linear model whose weights are in two modules, each of which sees its part of the input; it begins at 0.

    Args:
        first: how many inputs the first module sees.
        second: how many the second one sees.
    """

    def __init__(self, first: int, second: int) -> None:
        super().__init__()
        self.first, self.second = (nn.Linear(width, 1, bias=False, dtype=torch.float64) for width in (first, second))
        for parameter in self.parameters():
            nn.init.zeros_(parameter)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return one output per example, (B,)."""
        left = inputs[:, : self.first.in_features]
        outputs: Tensor = self.first(left) + self.second(inputs[:, self.first.in_features :])
        return outputs[:, 0]


def squared(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the squared error of one output per example, (B,)."""
    return (outputs.reshape(len(targets)) - targets).square()


def outlier() -> Problem:
    """Return four targets and one far off the other way, with inputs that are nearly the same.

    The gradient of the mean loss follows the outlier; clipped, the four outvote it, and the loss rises.
    """
    inputs = torch.cat([torch.ones(5, 1), 0.6 * torch.eye(5)], dim=1).double()
    targets = torch.tensor([-6.0, 1.0, 1.0, 1.0, 1.0], dtype=torch.float64)
    return Problem("outlier", TwoBlocks(3, 3), squared, inputs, targets, Flat(2.0), Layerwise(Flat(2.0)), 0.6, 120)


def opposed() -> Problem:
    """Return two examples that pull the first block in opposite directions, each clipped to the same length: it never moves.

    The kernel has a negative eigenvalue from the start, and the loss converges to a positive number.
    """
    inputs = torch.tensor([[1.0, 1.0], [3.0, 1.0]], dtype=torch.float64)
    targets = torch.tensor([-1.0, 4.0], dtype=torch.float64)
    return Problem("opposed", TwoBlocks(1, 1), squared, inputs, targets, Flat(2.0), Layerwise((Flat(2.0), Flat(8.0))), 0.12, 170)


def network() -> Problem:
    """Return five random points with random targets for a network with one hidden layer."""
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(5, 6, generator=generator, dtype=torch.float64)
    targets = torch.randn(5, generator=generator, dtype=torch.float64)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 1)).double()
    return Problem("network", model, squared, inputs, targets, Flat(1.0), Layerwise(Flat(1.0)), 0.1, 120)


def problems() -> tuple[Problem, ...]:
    """Return all of them."""
    return outlier(), opposed(), network()
