"""Loss functions: checks of their result, and eager execution of compiled models."""

from __future__ import annotations

__all__ = ["Loss", "LossFunction", "check_losses", "force_eager"]

import contextlib
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from privet.errors import InvalidArgumentError

LossFunction = Callable[[Any, Any], Tensor]


class Loss(nn.Module):
    """The loss as a module, so that the model's parameters can be swapped by name."""

    def __init__(self, model: nn.Module, loss_fn: LossFunction) -> None:
        super().__init__()
        self.model, self.loss_fn = model, loss_fn

    def forward(self, batch: Any) -> Tensor:
        """Return the losses."""
        return self.loss_fn(self.model, batch)


def check_losses(losses: object, examples: int) -> Tensor:
    """Return the losses, checked to be one per example.

    Raises:
        InvalidArgumentError: they are not a (B,) tensor.
    """
    if not isinstance(losses, Tensor) or losses.shape != (examples,):
        found = tuple(losses.shape) if isinstance(losses, Tensor) else type(losses).__name__
        raise InvalidArgumentError(
            "loss_fn", found, f"a function that returns one loss per example, shape ({examples},) for this batch",
            "Use reduction='none', and average over an example's own positions only.",
        )  # fmt: skip
    return losses


def force_eager() -> contextlib.AbstractContextManager[Any]:
    """Return a context in which compiled modules run eagerly: a compiled graph hides the functions that use parameters."""
    if "torch._dynamo" not in sys.modules:
        return contextlib.nullcontext()
    stance: contextlib.AbstractContextManager[Any] = torch.compiler.set_stance("force_eager")
    return stance
