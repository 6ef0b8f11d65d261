"""Past iterates: the public parameters and averages that inner and outer momentum carry from step to step."""

from __future__ import annotations

__all__ = ["PastIterates"]

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from privet.momentum import InnerOuter, Momentum


class PastIterates:
    """What a momentum carries from step to step: past parameters, and what the optimizer was handed, all of it public.

    Args:
        momentum: how the past counts, and how releases are accumulated.
    """

    def __init__(self, momentum: Momentum | None = None) -> None:
        self._momentum = InnerOuter(inner=1.0, outer=1.0, length=0) if momentum is None else momentum
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
            name of a parameter → what the optimizer is handed.
        """
        length, accumulate = len(self._momentum.coefficients), self._momentum.accumulate
        if length:
            self._past = [{name: p.detach().clone() for name, p in parameters.items()}, *self._past][:length]
        if not self._momentum.accumulates:
            return {name: released[name] for name in parameters}
        self._velocity = {name: accumulate(self._velocity.get(name), released[name]) for name in parameters}
        # Optimizers and their hooks may write to what they are handed.
        return {name: velocity.clone() for name, velocity in self._velocity.items()}

    def state_dict(self) -> dict[str, Any]:
        """Return past parameters and outer momentum."""
        return {"past": self._past, "velocity": self._velocity}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore past parameters and outer momentum."""
        self._past, self._velocity = list(state["past"]), dict(state["velocity"])
