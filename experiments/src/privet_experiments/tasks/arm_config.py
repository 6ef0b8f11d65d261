"""Configuration of an arm: everything that, with data and seed, determines a run."""

from __future__ import annotations

__all__ = ["ArmConfig", "TaskConfig", "table", "word"]

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Protocol

import torch

from privet._utils.registry import PARTS, decode, encode
from privet.errors import InvalidArgumentError, choice, positive
from privet.optim import scheduled_learning_rate
from privet.plan import Plan
from privet.plan.mechanism import Epochs
from privet.runs.config import Setup
from privet.schedules import Schedule
from privet_experiments.features import FEATURES


def table(name: str, value: object) -> Mapping[str, Any]:
    """Return `value` if it is a mapping."""
    if not isinstance(value, Mapping):
        raise InvalidArgumentError(name, value, "a table")
    return value


def word(name: str, value: object) -> str:
    """Return `value` if it is text."""
    if not isinstance(value, str):
        raise InvalidArgumentError(name, value, "text")
    return value


class TaskConfig(Protocol):
    """Interface of an arm's settings, for every task."""

    @property
    def features(self) -> str:
        """Name of the features, one of `FEATURES`."""

    @property
    def learning_rate(self) -> float | None:
        """Learning rate, where a search starts; None if the task has none."""

    @property
    def adaptive(self) -> bool:
        """Whether training adapts the clip bound."""

    def steps(self, examples: int) -> int:
        """Return the number of steps of a run."""

    def described(self) -> dict[str, Any]:
        """Return everything except the learning rate as plain JSON values."""

    def lasting(self, epochs: float | None) -> TaskConfig:
        """Return the settings with another length; None keeps it."""

    def shortened(self, part: float) -> TaskConfig:
        """Return the settings with this fraction of the length."""


@dataclass(frozen=True)
class ArmConfig:
    """Everything that, with data and seed, determines a run.

    Args:
        plan: fields of `privet.Plan` except `examples`, as values or as in plan.json.
        model: name of one of Privet's networks.
        learning_rate: > 0; the start of the search, if the recipe is tuned.
        epsilon: target ε of the calibration; None uses the plan's noise.
        model_options: options of the network.
        features: inputs of the network, one of `FEATURES`.
        optimizer: one of `privet.runs.config.OPTIMIZERS`.
        momentum: momentum of "sgd" and "nesterov", in [0, 1).
        average: one of `privet.runs.config.AVERAGES`, to evaluate an average of the parameters over the steps; or None.
        rate_schedule: factor of the learning rate at every step, such as `privet.schedules.ToZero()`; None for a constant rate.
    """

    plan: Mapping[str, Any]
    model: str
    learning_rate: float
    epsilon: float | None = None
    model_options: Mapping[str, Any] = field(default_factory=dict)
    features: str = "as they are"
    optimizer: str = "sgd"
    momentum: float = 0.0
    average: str | None = None
    rate_schedule: Schedule | Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        table("model_options", self.model_options)
        object.__setattr__(self, "plan", {name: encode(value) for name, value in self.plan.items()})
        choice("features", self.features, FEATURES)
        object.__setattr__(self, "rate_schedule", decode("rate_schedule", self.rate_schedule, Schedule))
        if not isinstance(self.rate_schedule, Schedule | None):
            raise InvalidArgumentError("rate_schedule", self.rate_schedule, "a schedule, such as privet.schedules.ToZero()")
        if self.epsilon is not None:
            positive("epsilon", self.epsilon)
        self.setup("", self.learning_rate, seed=0)

    def setup(self, data: str, rate: float, seed: int) -> Setup:
        """Return the part of a run's configuration that does not change its guarantee."""
        return Setup(
            data=data, model=self.model, learning_rate=rate, optimizer=self.optimizer, momentum=self.momentum,
            average=self.average, seed=seed,
        )  # fmt: skip

    def build_scheduler(self, optimizer: torch.optim.Optimizer, plan: Plan) -> torch.optim.lr_scheduler.LRScheduler | None:
        """Return the learning-rate scheduler, if there is one."""
        schedule = self.rate_schedule
        return scheduled_learning_rate(optimizer, schedule, plan.total_steps) if isinstance(schedule, Schedule) else None

    def plan_for(self, examples: int) -> Plan:
        """Return the uncalibrated plan for a number of examples; larger batch sizes shrink to what these allow."""
        named = dict(self.plan)
        sampling = named.get("sampling", {})
        largest = examples // sampling.get("cycle", 1)
        if sampling.get("batch_size", 0) > largest:
            named["sampling"] = {**sampling, "batch_size": largest}
        return Plan.from_dict({"format": Plan.FORMAT, "examples": examples, **named})

    @property
    def adaptive(self) -> bool:
        """Whether training adapts the clip bound."""
        rule = self.plan.get("clipping")
        return rule is not None and PARTS[rule["kind"]].adaptive

    def steps(self, examples: int) -> int:
        """Return the number of steps of a run."""
        return self.plan_for(examples).total_steps

    def described(self) -> dict[str, Any]:
        """Return everything except the learning rate, which belongs to a run, as plain JSON values."""
        found = {one.name: encode(getattr(self, one.name)) for one in fields(self) if one.name != "learning_rate"}
        if self.rate_schedule is None:
            del found["rate_schedule"]  # older runs lack this field
        return found

    def lasting(self, epochs: float | None) -> ArmConfig:
        """Return the settings with another length; None keeps it."""
        return self if epochs is None else replace(self, plan={**self.plan, "steps": Epochs(epochs)})

    def shortened(self, part: float) -> ArmConfig:
        """Return the settings with this fraction of the length, at least one step."""
        if part == 1:
            return self
        steps = decode("plan.steps", self.plan["steps"], Epochs)
        shorter = Epochs(steps.epochs * part) if isinstance(steps, Epochs) else max(1, round(steps * part))
        return replace(self, plan={**self.plan, "steps": shorter})
