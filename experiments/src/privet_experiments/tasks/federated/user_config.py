"""Settings of an arm on many users' data: who trains, at which level of privacy, and for how long."""

from __future__ import annotations

__all__ = ["METHODS", "UserConfig"]

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from privet._utils.registry import encode
from privet.errors import InvalidArgumentError, between, choice, count, positive
from privet.plan import Plan
from privet.sampling import Poisson

METHODS = ("federated", "users", "examples", "constant")
_UNITS = {"examples": "one example"}
# δ is one over this many times the number of units.
_TIMES = 10


@dataclass(frozen=True)
class UserConfig:
    """Everything that, with data and seed, determines a run.

    Args:
        plan: fields of `privet.Plan`, as values or as in plan.json: steps, clipping, and noise or sparsification. Number and unit
            of the examples, sampling and δ follow from method and data.
        method: "federated" (DP-FedAvg), "users" (central training, a user is the unit), "examples" (an example is), or "constant"
            (the best constant prediction, without privacy).
        learning_rate: of the server's or the central SGD, > 0; None for "constant".
        epsilon: target ε of the calibration; None uses the plan's noise.
        share: expected part of the units in a step, in (0, 1].
        momentum: of that SGD, in [0, 1).
        cap: largest number of a user's examples, unless an example is the unit.
        local_rate, local_steps, local_batch: of a client's `LocalSteps`.
        rehearsal: train on public users, with noise that changes the mean as much as in the private training, and evaluate on
            other public users. This costs no privacy, and serves the choice of settings.
    """

    plan: Mapping[str, Any]
    method: str = "federated"
    learning_rate: float | None = None
    epsilon: float | None = None
    share: float = 0.5
    momentum: float = 0.0
    cap: int = 16
    local_rate: float = 1.0
    local_steps: int = 1
    local_batch: int | None = None
    rehearsal: bool = False

    def __post_init__(self) -> None:
        choice("method", self.method, METHODS)
        object.__setattr__(self, "plan", {name: encode(value) for name, value in self.plan.items()})
        if (self.learning_rate is None) != (self.method == "constant"):
            raise InvalidArgumentError("learning_rate", self.learning_rate, "given, and left out for a constant")
        for name in ("epsilon", "learning_rate"):
            if getattr(self, name) is not None:
                positive(name, getattr(self, name))
        if self.share != 1:
            between("share", self.share, 0.0, 1.0, "It is the part of all units that is expected in a step.")
        count("cap", self.cap)

    def plan_for(self, units: int) -> Plan:
        """Return the plan for a number of users or examples, calibrated if the settings have an ε."""
        sampling, unit = Poisson(max(1, round(self.share * units))), _UNITS.get(self.method, "one user")
        made = {"examples": units, "unit": unit, "sampling": encode(sampling), "delta": 1 / (_TIMES * units)}
        found = Plan.from_dict({"format": Plan.FORMAT, **made, **self.plan})
        return found if self.epsilon is None else found.calibrate(self.epsilon)

    def rehearsal_of(self, plan: Plan, units: int) -> Plan:
        """Return a plan for fewer units whose noise changes the released mean as much as that of a calibrated plan."""
        sampling = Poisson(max(1, round(self.share * units)))
        factor = sampling.batch_size / plan.sampling.expected_batch_size(plan.examples)
        noise = plan.noise
        if noise.multiplier:
            noise = replace(noise, multiplier=noise.multiplier * factor)
        return replace(plan, examples=units, sampling=sampling, noise=noise)

    @property
    def features(self) -> str:
        """None: problems encode their inputs."""
        return "as they are"

    @property
    def adaptive(self) -> bool:
        """False."""
        return False

    def steps(self, examples: int) -> int:
        """Return the number of rounds or steps of a run."""
        return 1 if self.method == "constant" else int(self.plan["steps"])

    def described(self) -> dict[str, Any]:
        """Return everything except the learning rate as plain JSON values."""
        return {one.name: encode(getattr(self, one.name)) for one in fields(self) if one.name != "learning_rate"}

    def lasting(self, epochs: float | None) -> UserConfig:
        """Return the settings with another length; None keeps it."""
        return self if epochs is None else self._with_steps(epochs / self.share)

    def shortened(self, part: float) -> UserConfig:
        """Return the settings with this fraction of the length, at least one step."""
        return self if part == 1 else self._with_steps(self.plan["steps"] * part)

    def _with_steps(self, steps: float) -> UserConfig:
        return replace(self, plan={**self.plan, "steps": max(1, round(steps))})
