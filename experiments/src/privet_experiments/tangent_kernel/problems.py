"""Small problems that show effects of clipping on gradient flow, with enough parameters to fit every target exactly."""

from __future__ import annotations

__all__ = ["Problem", "TwoBlocks", "network", "opposed", "outlier", "problems", "squared"]

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from privet.clipping import Flat, Layerwise
from privet_experiments.tangent_kernel.kernel import Criterion


@dataclass(frozen=True, eq=False)
class Problem:
    """A float64 model and examples to fit, with bounds small enough to clip and steps small enough to follow the flow."""

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
    """A linear model with two modules, for the first and the other inputs; initialised with zeros."""

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
    """Return four equal targets and one distant outlier, with nearly equal inputs.

    The gradient of the mean loss follows the outlier. With clipping the other four dominate, and the loss rises.
    """
    inputs = torch.cat([torch.ones(5, 1), 0.6 * torch.eye(5)], dim=1).double()
    targets = torch.tensor([-6.0, 1.0, 1.0, 1.0, 1.0], dtype=torch.float64)
    return Problem("outlier", TwoBlocks(3, 3), squared, inputs, targets, Flat(2.0), Layerwise(Flat(2.0)), 0.6, 120)


def opposed() -> Problem:
    """Return two examples whose clipped gradients for the first block are opposite and equally long, so that it never moves.

    The kernel has a negative eigenvalue from the start, and the loss converges to a positive value.
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
    """Return all problems."""
    return outlier(), opposed(), network()
