"""Following parameters through the torch functions that use them: one forward pass, one backward pass, no wrapper.

A `TorchFunctionMode` sees every torch call of the user's forward pass. Calls that take a followed parameter and that a
handler knows are computed by an autograd function whose backward pass returns the input gradient and records what the
parameter's per-example gradients are made of; the parameter itself stays out of the graph. So a parameter that gets a gradient
from autograd all the same was used in a way that no handler followed: nothing can slip through unnoticed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from privet.errors import InvalidArgumentError, PrivetError
from privet.gradients import convolution_layers, elementwise, embedding, linear, normalisation
from privet.gradients.recorder import Recorder
from privet.gradients.tape import Tape
from privet.gradients.trees import examples_in

LossFunction = Callable[[Any, Any], Tensor]

HANDLERS: dict[Any, Callable[..., Any]] = {
    **linear.HANDLERS,
    **convolution_layers.HANDLERS,
    **embedding.HANDLERS,
    **elementwise.HANDLERS,
    **normalisation.HANDLERS,
}


class UntraceableError(PrivetError):
    """A parameter is used in a way that the tape does not follow."""


class _Interception(TorchFunctionMode):
    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        handler = HANDLERS.get(func)
        options = kwargs or {}
        if handler is not None and any(map(self._recorder.follows, (*args, *options.values()))):
            result = handler(self._recorder, *args, **options)
            if result is not None:
                return result
        return func(*args, **options)


def checked_losses(losses: object, examples: int) -> Tensor:
    """Return the losses if there is one per example.

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


def record(model: nn.Module, loss_fn: LossFunction, batch: Any, parameters: Mapping[str, Tensor]) -> Tape:
    """Return the tape of one forward and backward pass.

    Raises:
        UntraceableError: a parameter was used in a way that no handler follows.
        InvalidArgumentError: the loss function does not return one loss per example.
    """
    examples = examples_in(batch)
    recorder = Recorder(examples, parameters)
    with torch.enable_grad():
        with _Interception(recorder):
            losses = loss_fn(model, batch)
        total = checked_losses(losses, examples).sum()
        if total.requires_grad:
            leaked = torch.autograd.grad(total, [recorder.anchor, *parameters.values()], allow_unused=True)[1:]
            missed = [name for name, grad in zip(parameters, leaked, strict=True) if grad is not None]
            if missed:
                raise UntraceableError(f"the tape does not follow every use of {', '.join(missed)}")
    return recorder.tape()
