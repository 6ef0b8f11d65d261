"""The rule that holds at a step: the plan's, scaled by the bound's schedule, and adapted to what was released before."""

from __future__ import annotations

__all__ = ["ClippingState"]

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from privet._utils.registry import decode, encode
from privet.clipping.base import Rule
from privet.errors import InvalidArgumentError


class ClippingState:
    """What a training keeps of its rule from step to step: public, as everything that it is made of was released.

    Args:
        rule: the plan's.
        factors: of the bound at every step.
    """

    def __init__(self, rule: Rule, factors: Sequence[float]) -> None:
        self._rule, self._factors = rule, factors

    def at(self, step: int) -> Rule:
        """Return the rule of a step, counted from 1."""
        factor = self._factors[step - 1]
        return self._rule if factor == 1 else self._rule.scale_bound(factor)

    def adapt(self, released: Mapping[str, Tensor], divisor: float) -> None:
        """Take notice of the statistics among the tensors that a step released, each divided by the public divisor."""
        self._rule = self._rule.adapt({name: tensor for name, tensor in released.items() if ":" in name}, divisor)

    def state_dict(self) -> dict[str, Any]:
        """Return the adapted rule as plain values."""
        return {"rule": encode(self._rule)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the adapted rule.

        Raises:
            InvalidArgumentError: it is none that the plan's rule can have become.
        """
        found = decode("clipping", state["rule"], Rule)
        if type(found) is not type(self._rule) or not (found.adaptive or found == self._rule):
            raise InvalidArgumentError(
                "clipping", found, f"what {self._rule} can have become", "The checkpoint is not of this run."
            )
        self._rule = found
