"""Momentum against clipping bias: averages of an example's gradients, taken before clipping."""

from __future__ import annotations

from dataclasses import dataclass

from privet.errors import InvalidArgumentError, count, real


def _check_fraction(name: str, value: object, fix: str) -> None:
    """Refuse a number outside (0, 1]."""
    if not 0 < real(name, value, fix) <= 1:
        raise InvalidArgumentError(name, value, "greater than 0 and at most 1", fix)


@dataclass(frozen=True)
class InnerOuter:
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


@dataclass(frozen=True)
class PerExample:
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


Momentum = InnerOuter | PerExample
MOMENTA: dict[str, type[InnerOuter] | type[PerExample]] = {"InnerOuter": InnerOuter, "PerExample": PerExample}
NONE = InnerOuter(inner=1.0, outer=1.0, length=0)
