"""Local training: what a client does with its own examples. It is public, and no part of the guarantee."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from privet.errors import InvalidArgumentError, count, positive, real
from privet.gradients.core.losses import LossFunction

# (parameters, batch, (b,) weights of its examples) → gradients of the weighted mean of the losses.
Gradient = Callable[[Mapping[str, Tensor], Any, Tensor], Mapping[str, Tensor]]


@dataclass(frozen=True)
class LocalSteps:
    """Local steps of SGD of a client on its own examples, as in FedAvg.

    Each step takes the next `batch_size` of the client's examples, in their order, and starts again at the end.

    Args:
        learning_rate: local learning rate, > 0.
        steps: number of steps, ≥ 1.
        batch_size: examples per step, ≥ 1; None for all that a client has.
        proximal: coefficient μ ≥ 0 of FedProx, which adds μ·(θ − θ₀) to the gradient; 0 for FedAvg.
        full_weight: number of examples from which a client has weight 1; with n fewer, it has n/full_weight. None for equal
            weights. The divisor does not change: it stays the expected number of clients.

    Raises:
        InvalidArgumentError: an argument is out of range.

    Source:
        McMahan et al. 2017, "Communication-Efficient Learning of Deep Networks from Decentralized Data", Algorithm 1; Li et al.
        2020, "Federated Optimization in Heterogeneous Networks" (FedProx).

    >>> LocalSteps(learning_rate=0.1, steps=4, batch_size=8).proximal
    0.0
    """

    learning_rate: float
    steps: int
    batch_size: int | None = None
    proximal: float = 0.0
    full_weight: int | None = None

    def __post_init__(self) -> None:
        positive("local.learning_rate", self.learning_rate, "It is the rate of the clients, not of the server.")
        count("local.steps", self.steps, fix="It is the number of steps that a client takes in a round.")
        if self.batch_size is not None:
            count("local.batch_size", self.batch_size, fix="Leave it out to use all examples of a client in every step.")
        if real("local.proximal", self.proximal) < 0:
            raise InvalidArgumentError("local.proximal", self.proximal, "at least 0", "0 is FedAvg; FedProx uses 0.001 to 1.")
        if self.full_weight is not None:
            count("local.full_weight", self.full_weight, fix="Leave it out for equal weights.")

    @classmethod
    def fed_sgd(cls, batch_size: int | None = None) -> LocalSteps:
        """Return the local step of DP-FedSGD: an update is the mean gradient of at most `batch_size` of a client's examples."""
        return cls(learning_rate=1.0, steps=1, batch_size=batch_size)

    def program(self, loss_fn: LossFunction) -> Callable[..., Any]:
        """Return the local training with its loss and settings, for the record of a run."""
        program: Callable[..., Any] = train_locally
        return partial(program, loss_fn, *(value or 0 for value in astuple(self)))


def train_locally(
    gradient: Gradient, local: LocalSteps, parameters: Mapping[str, Tensor], content: Any, mask: Tensor
) -> tuple[dict[str, Tensor], Tensor]:
    """Return a client's pseudo-gradient, θ₀ − θ after its steps, and its weight in [0, 1].

    `content` is a pytree of tensors (k, …): the client's examples, where `mask` (k,) is True, and then padding.
    """
    size = mask.shape[0]
    width = size if local.batch_size is None else min(local.batch_size, size)
    examples, places = mask.sum(), torch.arange(width, device=mask.device)
    now = dict(parameters)
    for step in range(local.steps):
        index = (step * width + places) % examples.clamp(min=1)
        batch = pytree.tree_map(lambda leaf, index=index: leaf[index], content)
        # A client with fewer examples than the batch takes each of them once.
        found = gradient(now, batch, places < examples)
        now = {
            name: value - local.learning_rate * (found[name] + local.proximal * (value - parameters[name]))
            for name, value in now.items()
        }
    weight = torch.ones_like(examples, dtype=torch.float64)
    if local.full_weight is not None:
        weight = (examples.double() / local.full_weight).clamp(max=1.0)
    return {name: parameters[name] - now[name] for name in parameters}, weight
