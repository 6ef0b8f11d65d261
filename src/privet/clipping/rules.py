"""Clipping rules: functions from an example's gradient norm to the weight of its contribution."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from privet._utils.registry import register
from privet.clipping.base import BOUND_RANGE, NO_TIES, NOT_ROUNDING, NormRule, check_scale
from privet.errors import InvalidArgumentError, positive

_LEAST_SCALE = 1e-6
_STABILITY = "It sets the norm above which gradients are normalised; 1e-4 to 0.01 is usual."


@register
@dataclass(frozen=True)
class Flat(NormRule):
    """Scale down gradients above the bound: weight min(1, C/‖g‖).

    Args:
        bound: clip bound C, in [1e-12, 1e12].

    Guarantee:
        min(1, C/‖g‖)·‖g‖ ≤ C, so the sensitivity is C.

    Source:
        Abadi et al. 2016, "Deep Learning with Differential Privacy", Algorithm 1.

    >>> import torch
    >>> Flat(bound=0.5).weight(torch.tensor([0.0, 0.25, 2.0]))
    tensor([1.0000, 1.0000, 0.2500])
    """

    def factor(self, norms: Tensor) -> Tensor:
        """Return min(1, C/‖g‖)."""
        return (self.bound / norms).clamp(max=1.0)


@register
@dataclass(frozen=True)
class Automatic(NormRule):
    """Normalise every gradient, softened near zero: weight C/(‖g‖ + r), known as Auto-S.

    The bound folds into the learning rate, so there is one hyperparameter less to tune.

    Args:
        bound: C, in [1e-12, 1e12].
        stability: r, in [1e-12, 1e12]; keeps the weight finite at ‖g‖ = 0 (where it is C/r).

    Guarantee:
        C·‖g‖/(‖g‖ + r) < C, so the sensitivity is C.

    Source:
        Bu et al. 2023, "Automatic Clipping", Eq. 4 (there with C = 1).

    >>> import torch
    >>> Automatic(bound=1.0, stability=0.01).weight(torch.tensor([0.99], dtype=torch.float64))
    tensor([1.], dtype=torch.float64)
    """

    stability: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        check_scale("clipping.stability", self.stability, "It avoids division by zero at zero gradients; 0.01 is usual.")

    def factor(self, norms: Tensor) -> Tensor:
        """Return C/(‖g‖ + r)."""
        return self.bound / (norms + self.stability)


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


@register
@dataclass(frozen=True)
class Normalize(NormRule):
    """Normalise every gradient to the bound: weight C/‖g‖, and 0 for a zero gradient.

    Every example has the same influence, however small its gradient; `Automatic` and `PSAC` are softer there.

    Args:
        bound: C, in [1e-12, 1e12].

    Guarantee:
        C/‖g‖·‖g‖ = C, and 0 for zero gradients, so the sensitivity is C. Norms below 1e-12 count as 0. That a larger one is not
        mostly rounding error, which normalisation would amplify, is an assumption: where labels are the model's own outputs,
        for example, gradients are nothing else, and one example more changes those of all.

    Source:
        Bu et al. 2023, "On the Convergence and Calibration of Deep Learning with Differential Privacy", §2.2 (there with
        C = 1).

    >>> import torch
    >>> Normalize(bound=0.5).weight(torch.tensor([0.0, 0.25, 2.0]))
    tensor([0.0000, 2.0000, 0.2500])
    """

    assumptions: ClassVar[tuple[str, ...]] = (NOT_ROUNDING,)

    def factor(self, norms: Tensor) -> Tensor:
        """Return C/‖g‖, 0 at 0."""
        return torch.where(norms < BOUND_RANGE[0], 0.0, self.bound / norms)


@register
@dataclass(frozen=True)
class Global(NormRule):
    """Keep or drop: weight R/Z for gradients of norm at most the cutoff Z, and 0 for all others.

    All kept gradients have the same weight, so their sum keeps its direction. By default Z is R, and gradients within the bound
    are kept unchanged. It suits bounds that most gradients stay below. It is the "global clipping" of the private training
    literature, not `optax.clip_by_global_norm`, which is `Flat`.

    Args:
        bound: R, in [1e-12, 1e12].
        cutoff: Z, in [1e-12, 1e12]; None for R. It is scaled together with the bound (by a schedule, or for a group).

    Guarantee:
        R/Z·‖g‖ ≤ R where ‖g‖ ≤ Z, and 0 elsewhere, so the sensitivity is R.

    Source:
        Bu et al. 2023, "On the Convergence and Calibration of Deep Learning with Differential Privacy", Appendix C.8
        (Algorithm 1, option 2) and D (the indicator).

    >>> import torch
    >>> Global(bound=1.0, cutoff=4.0).weight(torch.tensor([0.0, 4.0, 4.1]))
    tensor([0.2500, 0.2500, 0.0000])
    """

    cutoff: float | None = None
    assumptions: ClassVar[tuple[str, ...]] = (NO_TIES,)  # the weight jumps at the cutoff

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cutoff is not None:
            check_scale("clipping.cutoff", self.cutoff, "It is the largest gradient norm that is kept; None means the bound.")

    @property
    def threshold(self) -> float:
        """Z."""
        return float(self.bound if self.cutoff is None else self.cutoff)

    def scale_bound(self, factor: float) -> Global:
        """Return the rule with bound factor·R and cutoff factor·Z; the weight of kept gradients stays the same."""
        cutoff = None if self.cutoff is None else factor * self.cutoff
        return replace(self, bound=factor * self.bound, cutoff=cutoff)

    def factor(self, norms: Tensor) -> Tensor:
        """Return R/Z, 0 above Z."""
        return (norms <= self.threshold).to(norms.dtype) * (self.bound / self.threshold)


@register
@dataclass(frozen=True)
class Unclipped(NormRule):
    """No clipping: noisy SGD, in which one example can move the sum without limit.

    There is no privacy at any noise level: every statement of a plan with it says ε = ∞, and it cannot be calibrated.

    Args:
        bound: in [1e-12, 1e12]; the noise is scaled to it as if gradients were clipped to it, but they are not. `sensitivity` is
            this nominal bound, and the true one is infinite.
        non_private: must be set to True explicitly.

    Source:
        "Improving Differentially Private SGD via Randomly Sparsified Gradients", Algorithm 2 (noisy SGD).

    >>> Unclipped(bound=0.5, non_private=True).weight(torch.tensor([0.25, 2.0, 1e9]))
    tensor([1., 1., 1.])
    """

    non_private: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.non_private is not True:
            fix = "Without clipping there is no privacy at all: ε = ∞."
            raise InvalidArgumentError("clipping.non_private", self.non_private, "True", fix)

    def factor(self, norms: Tensor) -> Tensor:
        """Return 1."""
        return torch.ones_like(norms)


def unbounded(value: object) -> bool:
    """Return whether a rule, or any rule within it, does not clip.

    >>> unbounded((1.0, Unclipped(bound=0.5, non_private=True)))
    True
    """
    if isinstance(value, Unclipped):
        return True
    if is_dataclass(value):
        return any(unbounded(getattr(value, field.name)) for field in fields(value))
    return isinstance(value, Iterable) and not isinstance(value, str) and any(map(unbounded, value))
