"""Canaries in real training: examples, or gradients on an additional parameter, included by coin flips."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import Dataset, TensorDataset

from privet._utils.randomness import Seeds
from privet.audit.observations import Mask
from privet.audit.probe import Array, most_influential
from privet.clipping import Rule
from privet.errors import InvalidArgumentError, choice, count
from privet.gradients import clipped_sum, trainable
from privet.gradients.core.examples import count_examples, select_examples, split_batch
from privet.gradients.core.losses import LossFunction
from privet.gradients.core.private import hold_signals
from privet.gradients.engine import tapes
from privet.gradients.methods.ghost import Program
from privet.gradients.projection.clipping import project
from privet.plan import Plan
from privet.reading.batches import BatchDataset, Group, check_map_style
from privet.reading.rows import ExampleReader, join_rows, ungroup
from privet.sampling import Indices

KINDS = ("mislabelled", "noise")
_CHUNK = 256  # canaries that go through the model at once


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


class Attack(Protocol):
    """An attack on the release of each step, and on the final model."""

    scores: Array

    def step(self, *_: object) -> None:
        """Add the evidence of a release for each canary to the scores; called before the optimizer's step."""

    def final(self) -> Array:
        """Return the score of each canary from the final model, (m,)."""


@dataclass(frozen=True, eq=False)
class CanaryTraining:
    """A training run with canaries.

    Args:
        model: the model, with the parameter for canaries if there is one.
        loss_fn: loss for batches of the data.
        data: real examples, followed by canaries.
        coins: (m,) whether each canary is included.
        attack: the attack.
    """

    model: nn.Module
    loss_fn: LossFunction
    data: BatchDataset
    coins: Mask
    attack: Attack


def add_example_canaries(
    plan: Plan, model: nn.Module, loss_fn: LossFunction, dataset: Dataset[Any], added: Dataset[Any]
) -> CanaryTraining:
    """Return a training run with examples as canaries."""
    data = _WithExamples(dataset, added, str(plan.unit))

    def weighted(model: nn.Module, batch: Any) -> Tensor:
        content, taking_part = batch
        losses: Tensor = loss_fn(model, content) * taking_part
        return losses

    return CanaryTraining(model, weighted, data, data.coins, _ExampleAttack(plan, model, loss_fn, data.added))


def add_gradient_canaries(
    plan: Plan, model: nn.Module, loss_fn: LossFunction, optimizer: torch.optim.Optimizer, dataset: Dataset[Any], number: int
) -> CanaryTraining:
    """Return a training run with an additional parameter, each coordinate of which belongs to one canary.

    A canary's loss is linear in its coordinate and independent of the model; real examples do not use the parameter.
    """
    names = tuple(trainable(model))
    if len(plan.clipping.groups(names)) != 1:
        raise InvalidArgumentError(
            "canaries", number, "examples, such as those of privet.audit._one_run.canaries, with a rule of several groups",
            "A parameter for canaries would form another group.",
        )  # fmt: skip
    extended = _WithCanaryParameter(model, count("canaries", number, minimum=2))
    optimizer.add_param_group({"params": [extended.canaries]})
    norm = float(most_influential(plan.clipping, 1)[0])
    data = _WithGradients(dataset, number, norm, str(plan.unit))

    def both(module: nn.Module, batch: Any) -> Tensor:
        content, real, gradients = batch
        assert isinstance(module, _WithCanaryParameter)
        losses: Tensor = loss_fn(module.model, content) * real + F.linear(gradients, module.canaries)[:, 0]
        return losses

    return CanaryTraining(extended, both, data, data.coins, _GradientAttack(plan, extended.canaries, norm))


class _WithCanaryParameter(nn.Module):
    """A model with an additional, unrelated parameter."""

    def __init__(self, model: nn.Module, number: int) -> None:
        super().__init__()
        self.model = model
        self.canaries = nn.Parameter(torch.zeros(1, number, device="cpu"))


def _flip_coins(number: int) -> Mask:
    return np.random.default_rng().random(number) < 0.5


class _Mixed(BatchDataset):
    """Real examples, which are read as usual, followed by canaries."""

    _real: ExampleReader

    @property
    def runs_user_code(self) -> bool:
        """Whether user code reads the real examples."""
        return self._real.runs_user_code

    def read(self, indices: Indices) -> Any:
        return join_rows(ungroup(self.groups(indices, strict=True), len(indices)))


class _WithExamples(_Mixed):
    """Real examples, followed by example canaries; an excluded canary keeps its place with weight zero."""

    def __init__(self, dataset: Dataset[Any], added: Dataset[Any], unit: str) -> None:
        self._real, self._number = ExampleReader(dataset), check_map_style(dataset)
        self._added, self.privacy_unit = ExampleReader(added), unit
        self.coins = _flip_coins(check_map_style(added))
        self.added = self._added.batch(np.arange(len(self.coins)))

    def __len__(self) -> int:
        return self._number + len(self.coins)

    def groups(self, indices: Indices, seeds: Seeds | None = None, *, strict: bool = False) -> list[Group]:
        """Return examples (batch of one, (1,) whether it is included)."""
        real, seeds = indices < self._number, seeds or Seeds.draw()
        taking_part = np.ones(len(indices), dtype=bool)
        taking_part[~real] = self.coins[indices[~real] - self._number]
        found = []
        for source, where, start in ((self._real, real, 0), (self._added, ~real, self._number)):
            places = torch.from_numpy(np.flatnonzero(where))
            for group in source.read(indices[where] - start, seeds, strict=strict):
                positions = places[group.positions]
                takes_part = torch.from_numpy(taking_part)[positions].unsqueeze(1)
                found.append(Group(positions, group.examples.append_leaves(takes_part)))
            seeds = seeds.after(len(places))
        return found


class _WithGradients(_Mixed):
    """Real examples, followed by gradient canaries with one coordinate each, zero if excluded."""

    def __init__(self, dataset: Dataset[Any], number: int, norm: float, unit: str) -> None:
        self._real, self._number, self._norm, self.privacy_unit = ExampleReader(dataset), check_map_style(dataset), norm, unit
        self.coins = _flip_coins(number)

    def __len__(self) -> int:
        return self._number + len(self.coins)

    def groups(self, indices: Indices, seeds: Seeds | None = None, *, strict: bool = False) -> list[Group]:
        """Return examples (batch of one, (1,) whether it is real, (1, m) gradient); a canary contains some real example."""
        real = indices < self._number
        gradients = torch.zeros(len(indices), 1, len(self.coins), device="cpu")
        own = indices[~real] - self._number
        gradients[torch.from_numpy(np.flatnonzero(~real)), 0, torch.from_numpy(own)] = torch.from_numpy(
            self._norm * self.coins[own]
        ).float()
        is_real = torch.from_numpy(real).unsqueeze(1)
        return [
            Group(group.positions, group.examples.append_leaves(is_real[group.positions], gradients[group.positions]))
            for group in self._real.read(np.where(real, indices, 0), seeds, strict=strict)
        ]


class _PlanSteps:
    """Iterator over the rule and the noise of each step."""

    def __init__(self, plan: Plan) -> None:
        self._plan, self._factors, self._multipliers = plan, plan.bound_factors(), plan.multipliers()
        self._taken = 0

    def next(self) -> tuple[Rule, float]:
        """Return the rule of the next step and the standard deviation of its noise."""
        rule = self._plan.clipping.scale_bound(float(self._factors[self._taken]))
        deviation = float(self._multipliers[self._taken]) * rule.sensitivity
        self._taken += 1
        return rule, deviation


class _ExampleAttack(Attack):
    """Attack by the product ⟨u, c⟩ of the release and each canary's contribution, and by the decrease of its loss."""

    def __init__(self, plan: Plan, model: nn.Module, loss_fn: LossFunction, batch: Any) -> None:
        self._plan, self._model, self._loss_fn, self._batch = plan, model, loss_fn, batch
        self._parameters, self._steps = trainable(model), _PlanSteps(plan)
        self._program = Program(model, loss_fn, self._parameters)
        self._groups = plan.clipping.groups(tuple(self._parameters))
        self.scores = np.zeros(count_examples(batch))
        self._before = self._losses()

    def step(self, *_: object) -> None:
        rule, deviation = self._steps.next()
        released = {name: self._plan.divisor * _gradient(parameter) for name, parameter in self._parameters.items()}
        ratios = torch.cat([self._log_ratio(batch, rule, released, deviation) for batch in self._chunks()])
        self.scores += log_likelihood_ratio(self._plan.sampling_rate, ratios.nan_to_num(0.0).numpy())

    def final(self) -> Array:
        return np.nan_to_num(self._before - self._losses())

    @hold_signals()
    def _losses(self) -> Array:
        """Return the loss of each canary by itself, as in training."""
        examples, guard = split_batch(self._batch), self._program.guard
        with torch.no_grad(), guard.isolate():
            alone = [self._loss_fn(self._model, examples.get(position)) for position in range(examples.count)]
        return np.asarray(torch.cat(alone).double().numpy())

    def _chunks(self) -> Iterator[Any]:
        for start in range(0, len(self.scores), _CHUNK):
            yield select_examples(self._batch, slice(start, start + _CHUNK))

    def _log_ratio(self, batch: Any, rule: Rule, released: Mapping[str, Tensor], deviation: float) -> Tensor:
        """Return the log likelihood ratio of the release with and without each contribution c: (⟨u, c⟩ − ‖c‖²/2)/(σS)²."""
        norms = clipped_sum(self._model, self._loss_fn, batch, rule).norms.double().reshape(len(self._groups), -1)
        weights = rule.weights(norms)
        found = -(weights * norms).square().sum(0) / 2
        for index, tape in tapes(self._model, self._loss_fn, batch, self._parameters):
            for weight, group in zip(weights, self._groups, strict=True):
                for name in filter(tape.grads.__contains__, group):
                    found[index] += weight[index] * project(tape.grads[name], released[name][None])[:, 0]
        return found / deviation**2


class _GradientAttack(Attack):
    """Attack by each canary's coordinate of the release, and of the final parameter."""

    def __init__(self, plan: Plan, parameter: nn.Parameter, norm: float) -> None:
        self._plan, self._parameter, self._steps, self._norm = plan, parameter, _PlanSteps(plan), norm
        self.scores = np.zeros(parameter.numel())

    def step(self, *_: object) -> None:
        rule, deviation = self._steps.next()
        contributed = self._norm * float(rule.weight(torch.tensor([self._norm], dtype=torch.float64, device="cpu")))
        released = self._plan.divisor * _gradient(self._parameter)[0].double().numpy()
        ratios = contributed * (released - contributed / 2) / deviation**2
        self.scores += log_likelihood_ratio(self._plan.sampling_rate, ratios)

    def final(self) -> Array:
        return -self._parameter.detach()[0].double().numpy()


def _gradient(parameter: nn.Parameter) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad


def log_likelihood_ratio(rate: float, ratios: Array) -> Array:
    """Return log(1 − q + q·e^r), the log likelihood ratio for a canary that is sampled with probability q."""
    return np.asarray(np.logaddexp(math.log1p(-rate) if rate < 1 else -np.inf, math.log(rate) + ratios))
