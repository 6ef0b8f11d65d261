"""Clipping rules: from an example's gradient norm to the weight of its contribution.

A rule says how parameters are grouped, what weight a norm gets, and the sensitivity that follows. The contribution of
an example to a group is `weight(norm) · gradient`; a rule's `sensitivity` bounds the L2 norm of all its contributions
together, so it is the rule, and nothing else, that the noise is scaled to.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from privet.errors import InvalidArgumentError, positive

# Below this a float32 norm may underflow to zero while the gradient still exceeds the bound; above it, sums overflow.
BOUND_RANGE = (1e-12, 1e12)


def _check_scale(name: str, value: float, fix: str) -> None:
    low, high = BOUND_RANGE
    if not low <= positive(name, value, fix) <= high:
        raise InvalidArgumentError(name, value, f"between {low:g} and {high:g}", "Rescale the loss instead.")


def _check_bound(value: float) -> None:
    _check_scale("clipping.bound", value, "Typical clip bounds lie between 0.01 and 10.")


class Rule(ABC):
    """What every clipping rule answers."""

    @property
    @abstractmethod
    def sensitivity(self) -> float:
        """Largest L2 norm of one example's contribution (add-remove and zero-out neighbours)."""

    @abstractmethod
    def weight(self, norms: Tensor) -> Tensor:
        """Return the factor for gradients with these norms.

        Args:
            norms: any shape, ≥ 0; NaN stands for a gradient that could not be computed.

        Returns:
            Same shape, ≥ 0; exactly 0 where the norm is not finite.
        """

    def groups(self, names: Sequence[str]) -> tuple[tuple[str, ...], ...]:
        """Partition parameter names into the groups that are clipped on their own; one group unless a rule says otherwise."""
        return (tuple(names),)

    def weights(self, norms: Tensor) -> Tensor:
        """Return the factors for a (G, B) tensor of group norms, same shape."""
        return self.weight(norms)


def _zero_where_not_finite(weights: Tensor, norms: Tensor) -> Tensor:
    return torch.where(torch.isfinite(norms), weights, torch.zeros_like(weights))


@dataclass(frozen=True)
class Flat(Rule):
    """Scale a gradient down to the bound when it is longer: weight min(1, C/‖g‖).

    Args:
        bound: clip bound C, in [1e-12, 1e12].

    Guarantee:
        min(1, C/‖g‖)·‖g‖ ≤ C, so the sensitivity is C.

    Source:
        Abadi et al. 2016, "Deep Learning with Differential Privacy", Algorithm 1.

    >>> Flat(bound=0.5).weight(torch.tensor([0.0, 0.25, 2.0]))
    tensor([1.0000, 1.0000, 0.2500])
    """

    bound: float

    def __post_init__(self) -> None:
        _check_bound(self.bound)

    @property
    def sensitivity(self) -> float:
        """C."""
        return float(self.bound)

    def weight(self, norms: Tensor) -> Tensor:
        """Return min(1, C/‖g‖)."""
        return _zero_where_not_finite((self.bound / norms).clamp(max=1.0), norms)


@dataclass(frozen=True)
class Automatic(Rule):
    """Normalise every gradient, softened near zero: weight C/(‖g‖ + r), known as Auto-S.

    The bound folds into the learning rate, so there is one parameter less to tune.

    Args:
        bound: C, in [1e-12, 1e12].
        stability: r, in [1e-12, 1e12]; keeps the weight finite at ‖g‖ = 0 (there it is C/r).

    Guarantee:
        C·‖g‖/(‖g‖ + r) < C, so the sensitivity is C.

    Source:
        Bu et al. 2023, "Automatic Clipping", Eq. 4 (there with C = 1).

    >>> Automatic(bound=1.0, stability=0.01).weight(torch.tensor([0.99]))
    tensor([1.])
    """

    bound: float
    stability: float = 0.01

    def __post_init__(self) -> None:
        _check_bound(self.bound)
        _check_scale("clipping.stability", self.stability, "Without it a zero gradient is divided by zero; 0.01 is usual.")

    @property
    def sensitivity(self) -> float:
        """C."""
        return float(self.bound)

    def weight(self, norms: Tensor) -> Tensor:
        """Return C/(‖g‖ + r)."""
        return _zero_where_not_finite(self.bound / (norms + self.stability), norms)


RULES: dict[str, type[Rule]] = {rule.__name__: rule for rule in (Flat, Automatic)}
