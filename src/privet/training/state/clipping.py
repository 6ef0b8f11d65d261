"""The clipping rule of each step: the plan's, scaled by the schedule of the bound and adapted to earlier releases."""

from __future__ import annotations

__all__ = ["ClippingState"]

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from privet._utils.registry import decode, encode
from privet.clipping.base import Rule
from privet.errors import InvalidArgumentError


class ClippingState:
    """The clipping rule of a training, as it changes from step to step. It is public: it is computed from released values.

    Args:
        rule: rule of the plan.
        factors: factor of the bound at every step.
        names: names of the trained parameters.

    Raises:
        InvalidArgumentError: at some step, the bound of a group leaves its range.
    """

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
        """Restore the adapted rule.

        Raises:
            InvalidArgumentError: the plan's rule cannot have become this one.
        """
        found = decode("clipping", state["rule"], Rule)
        if type(found) is not type(self._rule) or not (found.adaptive or found == self._rule):
            raise InvalidArgumentError(
                "clipping", found, f"a rule that {self._rule} can become", "The checkpoint belongs to another run."
            )
        self._rule = found
