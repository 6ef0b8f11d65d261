"""The default trainer of audits: `privet.Training`, observed through its optimizer, as other trainers can be."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from privet.audit.probe import LinearModel, Probe, Trace
from privet.clipping import AdaptiveQuantile
from privet.clipping.adaptive import COUNTS
from privet.errors import InvalidArgumentError
from privet.momentum import InnerOuter
from privet.training import Reading, Step, Training


def train(probe: Probe) -> Trace:
    """Train the probe by `privet.Training` and return the releases that its optimizer received."""
    model = LinearModel(probe.sizes, probe.tied)
    optimizer, size, unprobed = ReleaseRecorder(model), probe.physical_batch_size, Reading(probe=False)
    training = Training(
        probe.plan, model, output_of, optimizer, probe.data, physical_batch_size=size, method="ghost", reading=unprobed
    )
    return record_releases(probe, optimizer, training)


def record_releases(probe: Probe, optimizer: ReleaseRecorder, training: Iterable[Step]) -> Trace:
    """Take the steps of a training, which reads the probe's data, and return the releases that its optimizer received."""
    plan, momentum = probe.plan, probe.plan.momentum
    if momentum is not None and momentum.accumulates and not isinstance(momentum, InnerOuter):
        raise InvalidArgumentError(
            "momentum", momentum, "one that accumulates no releases, or privet.momentum.InnerOuter, to be audited",
            "The audit cannot recover the releases from what other momenta accumulate.",
        )  # fmt: skip
    probe.data.taken()  # discard the reads of the check before training
    drawn, counted = [], []
    for step in training:
        drawn.append(probe.data.taken())
        counted.append([*step.released.values()])
    releases = {name: plan.divisor * torch.cat(steps).double().numpy() for name, steps in optimizer.received.items()}
    if isinstance(momentum, InnerOuter):  # the optimizer got Mₖ = (1 − γ₁)·Mₖ₋₁ + release
        for steps in releases.values():
            steps[1:] -= (1 - momentum.outer) * steps[:-1]
    if not isinstance(plan.clipping, AdaptiveQuantile):
        return Trace(releases, drawn)
    rules = [plan.clipping]
    for counts in counted[:-1]:
        rules.append(rules[-1].adapt({COUNTS: torch.tensor(counts, dtype=torch.float64, device="cpu")}, plan.divisor))
    return Trace({**releases, COUNTS: plan.divisor * np.array(counted)}, drawn, rules)


def output_of(model: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
    """Return the losses of the rows: the outputs of the model."""
    return model(rows)


class ReleaseRecorder(torch.optim.Optimizer):
    """An optimizer that records the gradients that it receives and does not change the parameters."""

    def __init__(self, model: nn.Module) -> None:
        self._parameters = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
        super().__init__(self._parameters.values(), {"lr": 0.0})
        self.received: dict[str, list[Tensor]] = {name: [] for name in self._parameters}

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Record the gradients."""
        for name, parameter in self._parameters.items():
            assert parameter.grad is not None
            self.received[name].append(parameter.grad.clone())
