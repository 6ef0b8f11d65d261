"""Dynamical systems of optimizers: momentum and adaptive methods in the limit of small steps."""

from __future__ import annotations

__all__ = ["DYNAMICS", "GRADIENT_DESCENT", "Dynamics", "Motion"]

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Tensor

# Time constants of the averages, in the time of the flow, and what is added under the root.
_MOMENTUM_TIME, _SQUARES_TIME, _STABILITY = 1.0, 2.0, 0.1


@dataclass(frozen=True)
class Dynamics:
    """The system ẇ = −m/√(v + ξ), ṁ = g − r(t)·m, v̇ = p·g² − q·v for gradients g, elementwise.

    Without friction, m is g itself; without growth, nothing is divided by.

    Args:
        friction: r(t) for t > 0; None for no momentum.
        growth: p > 0; None for no division.
        decay: q ≥ 0.
        stability: ξ ≥ 0.

    Source:
        Bu et al. 2023, "On the Convergence and Calibration of Deep Learning with Differential Privacy", Eq. C.1 to C.8.
    """

    friction: Callable[[float], float] | None = None
    growth: float | None = None
    decay: float = 0.0
    stability: float = _STABILITY


GRADIENT_DESCENT = Dynamics()
_RATE = 1 / _SQUARES_TIME
DYNAMICS: Mapping[str, Dynamics] = {
    "gradient descent": GRADIENT_DESCENT,
    "heavy ball": Dynamics(friction=lambda t: 1 / _MOMENTUM_TIME),
    "NAG": Dynamics(friction=lambda t: 3 / t),
    "Adam": Dynamics(friction=lambda t: 1 / _MOMENTUM_TIME, growth=_RATE, decay=_RATE),
    "AdaGrad": Dynamics(growth=1.0),
    "RMSprop": Dynamics(growth=_RATE, decay=_RATE),
}


class Motion:
    """The state of a system, which starts at rest, in steps of equal time.

    Steps are implicit in r and q: m ← (m + dt·g)/(1 + dt·r), v ← (v + dt·p·g²)/(1 + dt·q), both at the end of the step. So NAG's
    r = 3/t needs no value at t = 0.

    Args:
        dynamics: the system.
        time: dt > 0.
    """

    def __init__(self, dynamics: Dynamics, time: float) -> None:
        self._dynamics, self._time, self._steps = dynamics, time, 0
        self._momentum: dict[str, Tensor] = {}
        self._squares: dict[str, Tensor] = {}

    def step(self, gradients: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return name → −ẇ at the end of the next step, given the gradients at its start."""
        system, time = self._dynamics, self._time
        self._steps += 1
        found = dict(gradients)
        if system.friction is not None:
            slowed = 1 + time * system.friction(self._steps * time)
            found = self._momentum = {
                name: (self._momentum.get(name, 0.0) + time * gradient) / slowed for name, gradient in gradients.items()
            }
        if system.growth is not None:
            shrunk = 1 + time * system.decay
            self._squares = {
                name: (self._squares.get(name, 0.0) + time * system.growth * gradient.square()) / shrunk
                for name, gradient in gradients.items()
            }
            found = {name: value / (self._squares[name] + system.stability).sqrt() for name, value in found.items()}
        return found
