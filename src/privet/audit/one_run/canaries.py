"""Canaries in a real training: examples, or gradients of their own, that take part by the fall of a coin."""

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
from privet.gradients.methods.ghost import Subject
from privet.gradients.projection.clipping import directional_derivatives
from privet.plan import Plan
from privet.reading.batches import BatchDataset, Group, check_map_style
from privet.reading.rows import ExampleReader, join_rows, ungroup
from privet.sampling import Indices

KINDS = ("mislabelled", "noise")
_PIECE = 256  # canaries that go through the model at once


def canaries(dataset: Dataset[Any], number: int, *, classes: int, kind: str = "mislabelled") -> TensorDataset:
    """Return examples that a model can only learn one by one.

    Args:
        dataset: map-style, of pairs (input, label).
        number: m ≥ 2; a thousand is sensible.
        classes: labels are 0, …, classes − 1, two or more.
        kind: "mislabelled": inputs of the data set with a wrong label; "noise": inputs of white noise as large as the data's,
            with a random label, whose gradients point in directions of their own.

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
    """What looks at every step's release, and at the final model."""

    scores: Array

    def step(self, *_: object) -> None:
        """Add what a release says for each canary's having taken part to the scores; called before an optimizer uses it."""

    def final(self) -> Array:
        """Return what the model says for each canary, (m,)."""


@dataclass(frozen=True, eq=False)
class Setting:
    """What is trained in place of what was to be.

    Args:
        model: with what the canaries need.
        loss_fn: of the data's batches.
        data: real examples, then canaries.
        coins: (m,) which of them take part.
        attack: on the training.
    """

    model: nn.Module
    loss_fn: LossFunction
    data: BatchDataset
    coins: Mask
    attack: Attack


def with_examples(plan: Plan, model: nn.Module, loss_fn: LossFunction, dataset: Dataset[Any], added: Dataset[Any]) -> Setting:
    """Return a training in which some examples are added."""
    data = _WithExamples(dataset, added, plan.unit)

    def weighted(model: nn.Module, batch: Any) -> Tensor:
        content, taking_part = batch
        losses: Tensor = loss_fn(model, content) * taking_part
        return losses

    return Setting(model, weighted, data, data.coins, _OnExamples(plan, model, loss_fn, data.added))


def with_gradients(
    plan: Plan, model: nn.Module, loss_fn: LossFunction, optimizer: torch.optim.Optimizer, dataset: Dataset[Any], number: int
) -> Setting:
    """Return a training with one more parameter, each of whose coordinates is a canary's alone.

    A canary's loss is linear in its coordinate and has nothing to do with the model; real examples do not touch the parameter.
    """
    names = tuple(trainable(model))
    if len(plan.clipping.groups(names)) != 1:
        raise InvalidArgumentError(
            "canaries", number, "examples, such as those of privet.audit.one_run.canaries, with a rule of several groups",
            "A parameter for canaries would be one more group.",
        )  # fmt: skip
    beside = _Beside(model, count("canaries", number, minimum=2))
    optimizer.add_param_group({"params": [beside.canaries]})
    norm = float(most_influential(plan.clipping, 1)[0])
    data = _WithGradients(dataset, number, norm, plan.unit)

    def both(module: nn.Module, batch: Any) -> Tensor:
        content, real, gradients = batch
        assert isinstance(module, _Beside)
        losses: Tensor = loss_fn(module.model, content) * real + F.linear(gradients, module.canaries)[:, 0]
        return losses

    return Setting(beside, both, data, data.coins, _OnGradients(plan, beside.canaries, norm))


class _Beside(nn.Module):
    """A model, and a parameter that has nothing to do with it."""

    def __init__(self, model: nn.Module, number: int) -> None:
        super().__init__()
        self.model = model
        self.canaries = nn.Parameter(torch.zeros(1, number))


def _coins(number: int) -> Mask:
    return np.random.default_rng().random(number) < 0.5


class _Mixed(BatchDataset):
    """Real examples, then canaries; the former are read as any others are."""

    _real: ExampleReader

    @property
    def runs_user_code(self) -> bool:
        """Whether the real examples are read by user code."""
        return self._real.runs_user_code

    def read(self, indices: Indices) -> Any:
        return join_rows(ungroup(self.groups(indices, strict=True), len(indices)))


class _WithExamples(_Mixed):
    """Real examples, then others; who is out keeps its place, and has weight zero."""

    def __init__(self, dataset: Dataset[Any], added: Dataset[Any], unit: str) -> None:
        self._real, self._number = ExampleReader(dataset), check_map_style(dataset)
        self._added, self.privacy_unit = ExampleReader(added), unit
        self.coins = _coins(check_map_style(added))
        self.added = self._added.batch(np.arange(len(self.coins)))

    def __len__(self) -> int:
        return self._number + len(self.coins)

    def groups(self, indices: Indices, seeds: Seeds | None = None, *, strict: bool = False) -> list[Group]:
        """Return examples (batch of one, (1,) whether it takes part)."""
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
    """Real examples, then canaries: gradients with one coordinate each, zero for who is out."""

    def __init__(self, dataset: Dataset[Any], number: int, norm: float, unit: str) -> None:
        self._real, self._number, self._norm, self.privacy_unit = ExampleReader(dataset), check_map_style(dataset), norm, unit
        self.coins = _coins(number)

    def __len__(self) -> int:
        return self._number + len(self.coins)

    def groups(self, indices: Indices, seeds: Seeds | None = None, *, strict: bool = False) -> list[Group]:
        """Return examples (batch of one, (1,) whether it is real, (1, m) gradient); a canary has some real one in its place."""
        real = indices < self._number
        gradients = torch.zeros(len(indices), 1, len(self.coins))
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
    """The rule and the noise of one step after another."""

    def __init__(self, plan: Plan) -> None:
        self._plan, self._factors, self._multipliers = plan, plan.bound_factors(), plan.multipliers()
        self._taken = 0

    def next(self) -> tuple[Rule, float]:
        """Return the rule of the next step, and the standard deviation of its noise."""
        rule = self._plan.clipping.scaled(float(self._factors[self._taken]))
        deviation = float(self._multipliers[self._taken]) * rule.sensitivity
        self._taken += 1
        return rule, deviation


class _OnExamples(Attack):
    """⟨u, c⟩ of the release with what each canary would contribute, and the fall of its loss."""

    def __init__(self, plan: Plan, model: nn.Module, loss_fn: LossFunction, batch: Any) -> None:
        self._plan, self._model, self._loss_fn, self._batch = plan, model, loss_fn, batch
        self._parameters, self._steps = trainable(model), _PlanSteps(plan)
        self._subject = Subject(model, loss_fn, self._parameters)
        self._groups = plan.clipping.groups(tuple(self._parameters))
        self.scores = np.zeros(count_examples(batch))
        self._before = self._losses()

    def step(self, *_: object) -> None:
        rule, deviation = self._steps.next()
        released = {name: self._plan.divisor * _gradient(parameter) for name, parameter in self._parameters.items()}
        ratios = torch.cat([self._log_ratio(batch, rule, released, deviation) for batch in self._pieces()])
        self.scores += log_likelihood_ratio(self._plan.sampling_rate, ratios.nan_to_num(0.0).numpy())

    def final(self) -> Array:
        return np.nan_to_num(self._before - self._losses())

    def _losses(self) -> Array:
        """Return the loss of every canary alone, as it is trained on."""
        examples, guard = split_batch(self._batch), self._subject.guard
        with torch.no_grad(), guard.isolate():
            alone = [self._loss_fn(self._model, examples.get(position)) for position in range(examples.count)]
        return np.asarray(torch.cat(alone).double().numpy())

    def _pieces(self) -> Iterator[Any]:
        for start in range(0, len(self.scores), _PIECE):
            yield select_examples(self._batch, slice(start, start + _PIECE))

    def _log_ratio(self, batch: Any, rule: Rule, released: Mapping[str, Tensor], deviation: float) -> Tensor:
        """Return log of how much likelier the release is with each example's contribution c in it: (⟨u, c⟩ − ‖c‖²/2)/(σS)²."""
        norms = clipped_sum(self._model, self._loss_fn, batch, rule).norms.double().reshape(len(self._groups), -1)
        weights = rule.weights(norms)
        found = -(weights * norms).square().sum(0) / 2
        for weight, group in zip(weights, self._groups, strict=True):
            direction = {name: tensor if name in group else torch.zeros_like(tensor) for name, tensor in released.items()}
            found += weight * directional_derivatives(self._subject, split_batch(batch), self._parameters, direction)
        return found / deviation**2


class _OnGradients(Attack):
    """Each canary's own coordinate of the release, and of the final parameter."""

    def __init__(self, plan: Plan, parameter: nn.Parameter, norm: float) -> None:
        self._plan, self._parameter, self._steps, self._norm = plan, parameter, _PlanSteps(plan), norm
        self.scores = np.zeros(parameter.numel())

    def step(self, *_: object) -> None:
        rule, deviation = self._steps.next()
        contributed = self._norm * float(rule.weight(torch.tensor([self._norm], dtype=torch.float64)))
        released = self._plan.divisor * _gradient(self._parameter)[0].double().numpy()
        ratios = contributed * (released - contributed / 2) / deviation**2
        self.scores += log_likelihood_ratio(self._plan.sampling_rate, ratios)

    def final(self) -> Array:
        return -self._parameter.detach()[0].double().numpy()


def _gradient(parameter: nn.Parameter) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad


def log_likelihood_ratio(rate: float, ratios: Array) -> Array:
    """Return log(1 − q + q·e^r): who takes part in a step with chance q is there in as many of the worlds."""
    return np.asarray(np.logaddexp(math.log1p(-rate) if rate < 1 else -np.inf, math.log(rate) + ratios))
