"""Rules with non-monotone weights, which do not amplify small gradients as normalisation does."""

from __future__ import annotations

__all__ = ["PSAC", "PSASC"]

from dataclasses import dataclass

from torch import Tensor

from privet._utils.registry import register
from privet.clipping.base import NormRule, check_scale
from privet.errors import InvalidArgumentError, positive

_LEAST_SCALE = 1e-6
_STABILITY = "It sets the norm above which gradients are normalised; 1e-4 to 0.01 is usual."


@register
@dataclass(frozen=True)
class PSAC(NormRule):
    """Normalise large gradients and nearly preserve small ones: weight C/(‖g‖ + r/(‖g‖ + r)).

    The weight is C at ‖g‖ = 0, largest at ‖g‖ = √r − r and about C/‖g‖ beyond.

    Args:
        bound: C, in [1e-12, 1e12].
        stability: r, in [1e-12, 1e12].

    Guarantee:
        C·‖g‖/(‖g‖ + r/(‖g‖ + r)) < C, so the sensitivity is C.

    Source:
        Xia et al. 2023, "Differentially Private Learning with Per-Sample Adaptive Clipping"; Huang et al., "Enhancing DP-SGD
        through Non-monotonous Adaptive Scaling Gradient Weight", Eq. 4 and 5.

    >>> import torch
    >>> PSAC(bound=0.5, stability=0.25).weight(torch.tensor([0.0, 0.25]))
    tensor([0.5000, 0.6667])
    """

    stability: float = 1e-4

    def __post_init__(self) -> None:
        super().__post_init__()
        check_scale("clipping.stability", self.stability, _STABILITY)

    def factor(self, norms: Tensor) -> Tensor:
        """Return C/(‖g‖ + r/(‖g‖ + r))."""
        return self.bound / (norms + self.stability / (norms + self.stability))


@register
@dataclass(frozen=True)
class PSASC(NormRule):
    """`PSAC` with a scale on the norm: weight C/(s·‖g‖ + r/(‖g‖ + r)).

    A smaller scale increases the weight of large gradients, and the noise by the same factor; only the multiplier affects ε.

    Args:
        bound: C, in [1e-12, 1e12].
        scale: s, in [1e-6, 1]; 1 is `PSAC`.
        stability: r, in [1e-12, 1e12].

    Guarantee:
        C·‖g‖/(s·‖g‖ + r/(‖g‖ + r)) grows with ‖g‖ and stays below C/s, so the sensitivity is C/s.

    Source:
        Huang et al., "Enhancing DP-SGD through Non-monotonous Adaptive Scaling Gradient Weight", Eq. 6 and Algorithm 1 (noise
        of standard deviation σ·C/s).

    >>> import torch
    >>> rule = PSASC(bound=0.5, scale=0.8, stability=0.25)
    >>> rule.sensitivity, rule.weight(torch.tensor([0.0, 1e9])) * torch.tensor([0.0, 1e9])
    (0.625, tensor([0.0000, 0.6250]))
    """

    scale: float = 0.9
    stability: float = 1e-4

    def __post_init__(self) -> None:
        super().__post_init__()
        if not _LEAST_SCALE <= positive("clipping.scale", self.scale, "0.5 to 0.95 is usual.") <= 1:
            raise InvalidArgumentError("clipping.scale", self.scale, f"between {_LEAST_SCALE:g} and 1", "0.5 to 0.95 is usual.")
        check_scale("clipping.stability", self.stability, _STABILITY)

    @property
    def sensitivity(self) -> float:
        """C/s."""
        return self.bound / self.scale

    def factor(self, norms: Tensor) -> Tensor:
        """Return C/(s·‖g‖ + r/(‖g‖ + r))."""
        return self.bound / (self.scale * norms + self.stability / (norms + self.stability))
