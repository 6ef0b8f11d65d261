"""Momentum against clipping bias: averages of an example's gradients, taken before clipping."""

from __future__ import annotations

__all__ = ["InnerOuter", "Momentum", "PerExample"]

from abc import ABC
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from privet._utils.registry import Part, register
from privet.clipping import Projected
from privet.errors import InvalidArgumentError, count, real


def _check_fraction(name: str, value: object, fix: str) -> None:
    if not 0 < real(name, value, fix) <= 1:
        raise InvalidArgumentError(name, value, "greater than 0 and at most 1", fix)


class Momentum(Part, ABC):
    """Interface of momenta; a kind of momentum overrides what differs.

    A momentum either adds an example's gradients at past parameter sets (`coefficients`) and accumulates releases
    (`accumulates`, `accumulate`), all of it public and saved; or it averages the gradients of every example over the steps
    (`averaging`), which is private and never saved.

    Guarantee:
        Gradients at past parameters, and averages of one example's own gradients, are functions of that
        example and of released values, so clipping bounds them; accumulated values were released.
    """

    @property
    def coefficients(self) -> tuple[float, ...]:
        """Weights of an example's gradients at past parameter sets, the latest first; each costs a pass in every step."""
        return ()

    @property
    def accumulates(self) -> bool:
        """Whether the optimizer receives the result of `accumulate` instead of the release."""
        return False

    def accumulate(self, before: Tensor | None, released: Tensor) -> Tensor:
        """Return the gradient of a parameter that the optimizer receives in this step.

        Args:
            before: the gradient that it received in the last step; None in the first.
            released: release of this step, divided by the plan's divisor; same shape.
        """
        return released

    @property
    def averaging(self) -> float | None:
        """γ in (0, 1], the weight of the current gradient in every example's own average; None for no averages."""
        return None

    @property
    def most_bytes(self) -> int:
        """Bytes that the averages of all examples may take; training refuses more by name."""
        return 2**30

    def check_combination(self, plan: Any) -> None:
        """Refuse sampling, rules and momenta that per-example averages cannot be combined with."""
        if self.averaging is None:
            return
        if plan.sampling_rate < 1:
            raise InvalidArgumentError(
                "momentum", type(self).__name__, "used with full batches, sampling rate 1: every average must see every step",
                "Make the batch size the number of examples, or choose privet.momentum.InnerOuter.",
            )  # fmt: skip
        if isinstance(plan.clipping, Projected):
            raise InvalidArgumentError(
                "clipping", plan.clipping,
                f"a rule of exact norms with momentum.{type(self).__name__}, which stores every gradient",
            )  # fmt: skip
        if self.coefficients or self.accumulates:
            raise InvalidArgumentError(
                "momentum", self, "without past parameter sets and accumulated releases if it averages every example's gradients"
            )


@register
@dataclass(frozen=True)
class InnerOuter(Momentum):
    """Momentum inside and outside of the private sum.

    Inner: clipping applies to mᵢ = Σₗ γ₀^(k−1−l)·gₗ,ᵢ, the sum of an example's gradients at the current parameters (with
    coefficient 1) and at those of up to K₀ previous steps. Outer: the optimizer receives Mₖ = (1 − γ₁)·Mₖ₋₁ + the step's release
    instead of the release; it grows to 1/γ₁ times the size, so the learning rate should decrease accordingly.

    Args:
        inner: γ₀, in (0, 1].
        outer: γ₁, in (0, 1]; 1 is no outer momentum.
        length: K₀ ≥ 0, number of past parameter sets; a step costs K₀ more passes, and K₀ + 1 times the memory of the parameters
            (with γ₁ = 1: K₀ times) in addition, on their device.

    Guarantee:
        Past parameters were released, so given them mᵢ is a function of the example alone, and clipping bounds it like a
        gradient: sensitivity and accounting are those of a step without momentum. The outer momentum is post-processing.

    Source:
        "DP-PSASC", Algorithm 3.

    >>> InnerOuter(inner=0.9, outer=0.1, length=2).coefficients
    (0.9, 0.81)
    """

    inner: float
    outer: float
    length: int

    def __post_init__(self) -> None:
        _check_fraction(
            "momentum.inner", self.inner, "It is the weight of the previous parameters; older ones have powers of it."
        )
        _check_fraction("momentum.outer", self.outer, "1 is no outer momentum; 0.1 is like a momentum of 0.9.")
        count("momentum.length", self.length, minimum=0, fix="It is the number of past parameter sets; each costs a pass.")

    @property
    def coefficients(self) -> tuple[float, ...]:
        """γ₀, γ₀², …, of the past parameter sets, the latest first."""
        return tuple(self.inner**age for age in range(1, self.length + 1))

    @property
    def accumulates(self) -> bool:
        """Whether γ₁ is not 1."""
        return self.outer != 1

    def accumulate(self, before: Tensor | None, released: Tensor) -> Tensor:
        """Return (1 − γ₁)·Mₖ₋₁ + the step's release."""
        return released.clone() if before is None else (1 - self.outer) * before + released


@register
@dataclass(frozen=True)
class PerExample(Momentum):
    """Separate momentum for every example: clipping applies to mₖ,ᵢ = γ·gₖ,ᵢ + (1 − γ)·mₖ₋₁,ᵢ, starting from m₀,ᵢ = g₀,ᵢ.

    For full batches only, because every example's average must see every step. The averages of all N examples are private and
    never saved, so a resumed training restarts them, which changes the trajectory but not the guarantee.

    Args:
        decay: γ, in (0, 1]; 1 is no momentum.
        memory_limit: memory limit of the averages in bytes; they take N times the size of the parameters.

    Guarantee:
        mₖ,ᵢ depends only on the example and on released parameters, and clipping bounds it like a gradient: sensitivity and
        accounting are those of a step without momentum.

    Source:
        "DP-PSASC", Algorithm 2; here mₖ,ᵢ already includes gₖ,ᵢ when step k clips it.
    """

    decay: float
    memory_limit: int = 2**30

    def __post_init__(self) -> None:
        _check_fraction("momentum.decay", self.decay, "It is the weight of the current gradient.")
        limit = self.memory_limit
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise InvalidArgumentError("momentum.memory_limit", limit, "a positive number of bytes")

    @property
    def averaging(self) -> float:
        """γ."""
        return self.decay

    @property
    def most_bytes(self) -> int:
        """The memory limit."""
        return self.memory_limit
