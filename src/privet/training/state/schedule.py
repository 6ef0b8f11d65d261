"""What releases change from step to step: the clipping rule, the masks and past parameters. All of it is public."""

from __future__ import annotations

__all__ = ["ClippingState", "MaskState", "PastIterates"]

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from privet._utils.registry import decode, encode
from privet.clipping.base import Rule
from privet.errors import InvalidArgumentError
from privet.momentum import InnerOuter, Momentum
from privet.sparsification.drawing import Masks
from privet.sparsification.kinds import Sparsification, Timetable


class ClippingState:
    """The clipping rule of each step: the plan's, scaled by the schedule of the bound and adapted to earlier releases."""

    def __init__(self, rule: Rule, factors: Sequence[float], names: Sequence[str]) -> None:
        self._rule, self._factors = rule, factors
        # A rule that is split among groups has smaller bounds there; a step at which one fails would be spent.
        for factor in {min(factors), max(factors)} - {1.0}:
            rule.scale_bound(factor).groups(rule.released(names))

    def at(self, step: int) -> Rule:
        """Return the rule of a step, counted from 1."""
        factor = self._factors[step - 1]
        return self._rule if factor == 1 else self._rule.scale_bound(factor)

    def adapt(self, released: Mapping[str, Tensor], divisor: float) -> None:
        """Adapt the rule to the statistics among the tensors that a step released, each divided by the public divisor."""
        self._rule = self._rule.adapt({name: tensor for name, tensor in released.items() if ":" in name}, divisor)

    def state_dict(self) -> dict[str, Any]:
        """Return the adapted rule as plain values."""
        return {"rule": encode(self._rule)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the adapted rule; refuse one that the plan's rule cannot have become."""
        found = decode("clipping", state["rule"], Rule)
        if type(found) is not type(self._rule) or not (found.adaptive or found == self._rule):
            raise InvalidArgumentError(
                "clipping", found, f"a rule that {self._rule} can become", "The checkpoint belongs to another run."
            )
        self._rule = found


class MaskState:
    """The masks of a training: public, since they are known in advance or computed from releases; one object for each block."""

    def __init__(self, sparsification: Sparsification, timetable: Timetable, parameters: Mapping[str, Tensor]) -> None:
        self._kind, self._times = sparsification, timetable
        self._shapes = {name: tuple(parameter.shape) for name, parameter in parameters.items()}
        self._device = next(iter(parameters.values())).device
        self._block: int | None = None
        self._masks: Masks | None = None
        # Sums of what was released in this block, and in the last one that released anything.
        self._sums: dict[str, Tensor] = {}
        self._ranking: dict[str, Tensor] = {}

    def at(self, step: int) -> Masks | None:
        """Return the masks of a step, counted from 1: name → True where a coordinate is kept; None to keep all."""
        block = self._times.block(step)
        if block != self._block:
            if self._sums:
                self._ranking, self._sums = self._sums, {}
            self._block, self._masks = block, self._of(block)
        return self._masks

    @property
    def current(self) -> Masks | None:
        """The masks of the step that was last asked for; None if it keeps all."""
        return self._masks

    def apply(self, released: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Return what moves the parameters: the release, of which ranking kinds drop what the step's masks drop.

        The whole release is added to the sums that rank coordinates, so that dropped ones can return.
        """
        if not self._kind.ranks:
            return released
        for name in self._shapes:
            total = self._sums.get(name)
            self._sums[name] = released[name].clone() if total is None else total.add_(released[name])
        masks = self._masks or {}
        return {name: tensor.masked_fill(~masks[name], 0) if name in masks else tensor for name, tensor in released.items()}

    def state_dict(self) -> dict[str, Any]:
        """Return the state from which masks are computed, apart from the plan."""
        return {"block": self._block, "sums": self._sums, "ranking": self._ranking}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state."""
        self._block, self._sums, self._ranking = state["block"], dict(state["sums"]), dict(state["ranking"])
        self._masks = None if self._block is None else self._of(self._block)

    def _of(self, block: int) -> Masks | None:
        found = self._kind.masks(block, self._times.blocks, self._shapes, self._ranking)
        return None if found is None else {name: mask.to(self._device) for name, mask in found.items()}


class PastIterates:
    """The state of a momentum from step to step: past parameters and accumulated releases. All of it is public."""

    def __init__(self, momentum: Momentum | None = None) -> None:
        self._momentum = InnerOuter(inner=1.0, outer=1.0, length=0) if momentum is None else momentum
        self._past: list[Mapping[str, Tensor]] = []  # the latest first
        self._velocity: dict[str, Tensor] = {}

    def past(self) -> tuple[tuple[float, Mapping[str, Tensor]], ...]:
        """Return the stored past parameters with their coefficients."""
        return tuple(zip(self._momentum.coefficients, self._past, strict=False)) if self._past else ()

    def step(self, released: Mapping[str, Tensor], parameters: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Record a step before the parameters change, and return name of a parameter → gradient for the optimizer."""
        length, accumulate = len(self._momentum.coefficients), self._momentum.accumulate
        if length:
            self._past = [{name: p.detach().clone() for name, p in parameters.items()}, *self._past][:length]
        if not self._momentum.accumulates:
            return {name: released[name] for name in parameters}
        self._velocity = {name: accumulate(self._velocity.get(name), released[name]) for name in parameters}
        # Copies, because optimizers and their hooks may write to gradients.
        return {name: velocity.clone() for name, velocity in self._velocity.items()}

    def state_dict(self) -> dict[str, Any]:
        """Return past parameters and outer momentum."""
        return {"past": self._past, "velocity": self._velocity}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore past parameters and outer momentum."""
        self._past, self._velocity = list(state["past"]), dict(state["velocity"])
