"""The trainer that is audited by default: `privet.Training` as it is, watched from outside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from privet.audit.probe import Array, LinearModel, Probe, Trace
from privet.clipping import AdaptiveQuantile, Rule
from privet.errors import InvalidArgumentError
from privet.momentum import InnerOuter
from privet.training import Training


def train(probe: Probe) -> Trace:
    """Train the probe by `privet.Training` and return what its optimizer was handed."""
    momentum = probe.plan.momentum
    if momentum is not None and momentum.accumulates and not isinstance(momentum, InnerOuter):
        raise InvalidArgumentError(
            "momentum", momentum, "one that accumulates no releases, or privet.momentum.InnerOuter, to be audited",
            "Of others it is not known how to find out what was released.",
        )  # fmt: skip
    model = LinearModel(probe.sizes, probe.tied)
    watched = _Watched.of(probe.plan.clipping)
    plan = probe.plan if watched is None else replace(probe.plan, clipping=watched)
    optimizer = Recorder(model)
    training = Training(plan, model, _loss, optimizer, probe.data, physical_batch_size=probe.physical_batch_size)
    probe.data.taken()  # what was read to check the model
    drawn = [probe.data.taken() for _ in training]
    handed = {name: plan.divisor * torch.cat(steps).double().numpy() for name, steps in optimizer.handed.items()}
    if isinstance(plan.momentum, InnerOuter):
        handed = {name: _without_outer(steps, plan.momentum.outer) for name, steps in handed.items()}
    if watched is None:
        return Trace(handed, drawn)
    counts = {
        name: plan.divisor * np.stack([statistics[name].double().numpy() for _, statistics in watched.seen])
        for name in watched.seen[0][1]
    }
    return Trace(handed | counts, drawn, [rule for rule, _ in watched.seen])


def _loss(model: nn.Module, rows: Tensor) -> Tensor:
    losses: Tensor = model(rows)
    return losses


class Recorder(torch.optim.Optimizer):
    """An optimizer that keeps what it is handed and leaves the parameters as they are.

    Args:
        model: over whose trainable parameters it is.
    """

    def __init__(self, model: nn.Module) -> None:
        self._parameters = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
        super().__init__(self._parameters.values(), {"lr": 0.0})
        self.handed: dict[str, list[Tensor]] = {name: [] for name in self._parameters}

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Keep the gradients."""
        for name, parameter in self._parameters.items():
            assert parameter.grad is not None
            self.handed[name].append(parameter.grad.clone())


@dataclass(frozen=True)
class _Watched(AdaptiveQuantile):
    """An adaptive rule that keeps every step's rule, and the statistics that were released with it."""

    seen: list[tuple[Rule, Mapping[str, Tensor]]] = field(default_factory=list, compare=False)

    @staticmethod
    def of(rule: Rule) -> _Watched | None:
        if not isinstance(rule, AdaptiveQuantile):
            return None
        return _Watched(rule.rule, rule.quantile, rule.learning_rate, rule.share)

    def adapted(self, statistics: Mapping[str, Tensor], divisor: float) -> AdaptiveQuantile:
        self.seen.append((self, statistics))
        return super().adapted(statistics, divisor)


def _without_outer(steps: Array, outer: float) -> Array:
    """Return the releases that Mₖ = (1 − γ₁)·Mₖ₋₁ + release was made of."""
    before = np.concatenate([np.zeros_like(steps[:1]), steps[:-1]])
    return np.asarray(steps - (1 - outer) * before)
