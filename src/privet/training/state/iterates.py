"""Past iterates: the public parameters and averages that inner and outer momentum carry from step to step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from privet.momentum import NONE, InnerOuter


class PastIterates:
    """What inner and outer momentum carry from step to step: past parameters and Mₖ, all of it public.

    Args:
        momentum: which powers, and how much of Mₖ₋₁ stays.
    """

    def __init__(self, momentum: InnerOuter = NONE) -> None:
        self._momentum = momentum
        self._past: list[Mapping[str, Tensor]] = []  # the latest first
        self._velocity: dict[str, Tensor] = {}

    def past(self) -> tuple[tuple[float, Mapping[str, Tensor]], ...]:
        """Return the past parameter sets that there are, with their coefficients."""
        return tuple(zip(self._momentum.coefficients, self._past, strict=False))

    def step(self, released: Mapping[str, Tensor], parameters: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Record a step, before the parameters change.

        Args:
            released: name → what the step released.
            parameters: that it was released for.

        Returns:
            name of a parameter → outer momentum.
        """
        length, kept = self._momentum.length, 1 - self._momentum.outer
        if length:
            self._past = [{name: p.detach().clone() for name, p in parameters.items()}, *self._past][:length]
        if kept == 0:
            return {name: released[name] for name in parameters}
        self._velocity = {
            name: kept * self._velocity[name] + released[name] if name in self._velocity else released[name].clone()
            for name in parameters
        }
        # Optimizers and their hooks may write to what they are handed.
        return {name: velocity.clone() for name, velocity in self._velocity.items()}

    def state_dict(self) -> dict[str, Any]:
        """Return past parameters and outer momentum."""
        return {"past": self._past, "velocity": self._velocity}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore past parameters and outer momentum."""
        self._past, self._velocity = list(state["past"]), dict(state["velocity"])
