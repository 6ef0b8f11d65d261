"""What a recipe can train for: the loss of an example, and how the trained model is measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

from privet.data import DataSet
from privet.evaluation import evaluate, evaluate_regression
from privet.setups import cross_entropy


@dataclass(frozen=True)
class Task:
    """Args: a loss (model, batch) → (B,), and a measurement (model, examples) → a value whose attributes are metrics."""

    loss: Callable[[nn.Module, Any], Tensor]
    measure: Callable[[nn.Module, TensorDataset], object]


def squared_error(model: nn.Module, batch: Any) -> Tensor:
    """Return the squared error of every example, (B,), of a model with one output."""
    inputs, targets = batch
    return F.mse_loss(model(inputs)[:, 0], targets, reduction="none")


TASKS = {"classification": Task(cross_entropy, evaluate), "regression": Task(squared_error, evaluate_regression)}
# Metrics that are shares, shown in per cent.
SHARES = {"accuracy", "expected_calibration_error", "maximum_calibration_error"}


def outputs(data: DataSet) -> int:
    """Return how many outputs a network for this data needs: one for each label, or one target."""
    return 1 if data.classes is None else data.classes
