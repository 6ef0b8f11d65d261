"""Past iterates: the public parameters and averages that inner and outer momentum carry from step to step."""

from __future__ import annotations

__all__ = ["PastIterates"]

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from privet.momentum import InnerOuter, Momentum


class PastIterates:
    """The state of a momentum from step to step: past parameters and accumulated releases. All of it is public.

    Args:
        momentum: weights of past parameters, and how releases are accumulated; None for no momentum.
    """

    def __init__(self, momentum: Momentum | None = None) -> None:
        self._momentum = InnerOuter(inner=1.0, outer=1.0, length=0) if momentum is None else momentum
        self._past: list[Mapping[str, Tensor]] = []  # the latest first
        self._velocity: dict[str, Tensor] = {}

    def past(self) -> tuple[tuple[float, Mapping[str, Tensor]], ...]:
        """Return the stored past parameters with their coefficients."""
        return tuple(zip(self._momentum.coefficients, self._past, strict=False))

    def step(self, released: Mapping[str, Tensor], parameters: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Record a step, before the parameters change.

        Args:
            released: name → tensor that the step released.
            parameters: name → parameter for which it was released.

        Returns:
            name of a parameter → gradient for the optimizer.
        """
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
