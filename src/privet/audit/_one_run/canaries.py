"""Canaries in real training: examples, or gradients on an additional parameter, included by coin flips."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import Dataset, TensorDataset

from privet._utils.randomness import preserve_generators
from privet.audit.probe import Array, most_influential
from privet.clipping import Rule
from privet.errors import InvalidArgumentError, choice, count
from privet.gradients import per_example_gradients, trainable
from privet.gradients.core.examples import count_examples, select_examples
from privet.gradients.core.losses import LossFunction
from privet.plan import Plan
from privet.reading.batches import BatchDataset, check_map_style
from privet.reading.rows import ExampleReader
from privet.sampling import Indices

KINDS = ("mislabelled", "noise")
_NUMBERS = 1 << 24  # most numbers in the gradients of canaries that go through the model at once


def canaries(dataset: Dataset[Any], number: int, *, classes: int, kind: str = "mislabelled") -> TensorDataset:
    """Return examples that a model can only memorise.

    Args:
        dataset: map-style data set of pairs (input, label).
        number: number of canaries m ≥ 2; a thousand is typical.
        classes: number of classes, ≥ 2; labels are 0, …, classes − 1.
        kind: "mislabelled": inputs of the data set with a wrong label; "noise": inputs of white noise with the data's mean and
            standard deviation and a random label, whose gradients have directions of their own.

    Raises:
        InvalidArgumentError: an argument is out of range.
    """
    count("number", number, minimum=2)
    count("classes", classes, minimum=2)
    choice("kind", kind, KINDS)
    generator = np.random.default_rng()
    inputs, labels = ExampleReader(dataset).batch(generator.integers(check_map_style(dataset), size=number))
    if kind == "noise":
        inputs = inputs.mean() + inputs.std() * torch.randn_like(inputs)
    wrong = torch.from_numpy(generator.integers(1, classes, size=number)).to(labels)
    return TensorDataset(inputs, (labels + wrong) % classes)


def add_example_canaries(
    plan: Plan, model: nn.Module, loss_fn: LossFunction, dataset: Dataset[Any], added: Dataset[Any]
) -> tuple[nn.Module, LossFunction, _Mixed, _Attack]:
    """Return what to train to attack a run: the model, its loss on data with canaries by coin flips, and the attack."""
    data = _Mixed(dataset, check_map_style(added), str(plan.unit), added=added)
    rows = ExampleReader(added).batch(np.arange(len(data.coins)))

    def weighted(model: nn.Module, batch: Any) -> Tensor:
        content, taking_part = batch
        losses: Tensor = loss_fn(model, content) * taking_part
        return losses

    return model, weighted, data, _ExampleAttack(plan, model, loss_fn, rows)


def add_gradient_canaries(
    plan: Plan, model: nn.Module, loss_fn: LossFunction, optimizer: torch.optim.Optimizer, dataset: Dataset[Any], number: int
) -> tuple[nn.Module, LossFunction, _Mixed, _Attack]:
    """Return the same with a model that has an additional parameter, each coordinate of which belongs to one canary.

    A canary's loss is linear in its coordinate and independent of the model; real examples do not use the parameter.
    """
    if len(plan.clipping.groups(tuple(trainable(model)))) != 1:
        raise InvalidArgumentError(
            "canaries", number, "examples, such as those of privet.audit.canaries, with a rule of several groups",
            "A parameter for canaries would form another group.",
        )  # fmt: skip
    extended = _WithCanaryParameter(model, count("canaries", number, minimum=2))
    optimizer.add_param_group({"params": [extended.canaries]})
    norm = float(most_influential(plan.clipping, 1)[0])
    data = _Mixed(dataset, number, str(plan.unit), norm=norm)

    def both(module: nn.Module, batch: Any) -> Tensor:
        content, real, gradients = batch
        assert isinstance(module, _WithCanaryParameter)
        losses: Tensor = loss_fn(module.model, content) * real + F.linear(gradients, module.canaries)[:, 0]
        return losses

    return extended, both, data, _GradientAttack(plan, extended.canaries, norm)


class _WithCanaryParameter(nn.Module):
    def __init__(self, model: nn.Module, number: int) -> None:
        super().__init__()
        self.model = model
        self.canaries = nn.Parameter(torch.zeros(1, number, device="cpu"))


class _Mixed(BatchDataset):
    """Real examples, which are read as usual, followed by canaries; an excluded canary keeps its place and contributes nothing.

    Args:
        added: the canaries, if they are examples.
        norm: norm of the gradient of a canary, if they are coordinates of a parameter.
    """

    def __init__(self, dataset: Dataset[Any], number: int, unit: str, *, added: Dataset[Any] | None = None, norm: float = 0.0):
        self._real, self._number, self.privacy_unit = ExampleReader(dataset), check_map_style(dataset), unit
        self._added, self._norm = None if added is None else ExampleReader(added), norm
        self.coins = np.random.default_rng().random(number) < 0.5

    def __len__(self) -> int:
        return self._number + len(self.coins)

    def read(self, indices: Indices) -> Any:
        """Return an example as (batch of one, (1,) whether it counts), and with canaries of a parameter (1, m) its gradient."""
        own = int(indices[0]) - self._number
        if self._added is not None and own >= 0:
            return self._added.batch(np.array([own])), torch.from_numpy(self.coins[own : own + 1])
        counts = torch.tensor([own < 0], device="cpu")
        content = self._real.batch(indices if own < 0 else np.zeros_like(indices))  # of a canary: a real example's, not counted
        if self._added is not None:
            return content, counts
        gradient = torch.zeros(1, len(self.coins), device="cpu")
        if own >= 0:
            gradient[0, own] = self._norm * float(self.coins[own])
        return content, counts, gradient


class _Attack(ABC):
    """Attack by the release of each step, and by the final model."""

    def __init__(self, plan: Plan, parameters: Mapping[str, nn.Parameter], canaries: int) -> None:
        self._plan, self._parameters, self.scores = plan, parameters, np.zeros(canaries)
        self._steps = zip(plan.bound_factors().tolist(), plan.multipliers().tolist(), strict=True)

    def step(self, *_: object) -> None:
        """Add the evidence of a release for each canary to the scores; called before the optimizer's step."""
        factor, multiplier = next(self._steps)
        rule = self._plan.clipping.scale_bound(factor)
        gradients = {name: parameter.grad for name, parameter in self._parameters.items()}
        released = {name: self._plan.divisor * grad.double().flatten() for name, grad in gradients.items() if grad is not None}
        # Log likelihood ratio of the release with and without the contribution c: (⟨u, c⟩ − ‖c‖²/2)/(σS)².
        ratios = self._compare(rule, released) / (multiplier * rule.sensitivity) ** 2
        self.scores += log_likelihood_ratio(self._plan.sampling_rate, ratios)

    @abstractmethod
    def _compare(self, rule: Rule, released: Mapping[str, Tensor]) -> Array:
        """Return ⟨u, c⟩ − ‖c‖²/2 for the release u and the contribution c of each canary, (m,)."""

    @abstractmethod
    def final(self) -> Array:
        """Return the score of each canary from the final model, (m,)."""


class _ExampleAttack(_Attack):
    """Attack by the product ⟨u, c⟩ of the release and each canary's contribution, and by the decrease of its loss."""

    def __init__(self, plan: Plan, model: nn.Module, loss_fn: LossFunction, batch: Any) -> None:
        super().__init__(plan, trainable(model), count_examples(batch))
        self._model, self._loss_fn, self._batch = model, loss_fn, batch
        self._at_once = max(1, _NUMBERS // sum(parameter.numel() for parameter in self._parameters.values()))
        self._before = self._losses()

    def _compare(self, rule: Rule, released: Mapping[str, Tensor]) -> Array:
        groups, found = rule.groups(tuple(self._parameters)), []
        for start in range(0, len(self.scores), self._at_once):
            batch = select_examples(self._batch, slice(start, start + self._at_once))
            gradients = per_example_gradients(self._model, self._loss_fn, batch)
            rows = {name: value.double().flatten(1) for name, value in gradients.items()}
            norms = torch.stack([torch.cat([rows[name] for name in group], 1).norm(dim=1) for group in groups])
            along = torch.stack([torch.stack([rows[name] @ released[name] for name in group]).sum(0) for group in groups])
            weights = rule.weights(norms)
            found.append((weights * along - (weights * norms).square() / 2).sum(0))
        return np.asarray(torch.cat(found).nan_to_num(0.0).cpu().numpy())

    def final(self) -> Array:
        return np.nan_to_num(self._before - self._losses())

    def _losses(self) -> Array:
        """Return the loss of each canary by itself, as in training."""
        model = copy.deepcopy(self._model)
        with torch.no_grad(), preserve_generators():
            alone = [self._loss_fn(model, select_examples(self._batch, slice(i, i + 1))) for i in range(len(self.scores))]
        return np.asarray(torch.cat(alone).double().cpu().numpy())


class _GradientAttack(_Attack):
    """Attack by each canary's coordinate of the release, and of the final parameter."""

    def __init__(self, plan: Plan, parameter: nn.Parameter, norm: float) -> None:
        super().__init__(plan, {"canaries": parameter}, parameter.numel())
        self._norm = torch.tensor([norm], dtype=torch.float64, device="cpu")

    def _compare(self, rule: Rule, released: Mapping[str, Tensor]) -> Array:
        contributed = self._norm * rule.weight(self._norm)
        return np.asarray((contributed * (released["canaries"] - contributed / 2)).numpy())

    def final(self) -> Array:
        return -self._parameters["canaries"].detach()[0].double().numpy()


def log_likelihood_ratio(rate: float, ratios: Array) -> Array:
    """Return log(1 − q + q·e^r), the log likelihood ratio for a canary that is sampled with probability q."""
    return np.asarray(np.logaddexp(math.log1p(-rate) if rate < 1 else -np.inf, math.log(rate) + ratios))
