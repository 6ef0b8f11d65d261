"""Adaptive clipping: bounds that follow a privately estimated quantile of the gradient norms."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from privet._utils.registry import register
from privet.clipping.base import BOUND_RANGE, NO_TIES, NormRule, Rule
from privet.clipping.layerwise import Layerwise
from privet.errors import InvalidArgumentError, between, count, positive

COUNTS = "clipping:within bound"

# A factor beyond e^±60 would put every bound out of range.
_LARGEST_EXPONENT = 60.0
# Margin within the range, so that the rounded product of factor and bound stays in range.
_MARGIN = 1e-9


@register
@dataclass(frozen=True)
class AdaptiveQuantile(Rule):
    """Let the bound of a rule, or of every group of a layerwise rule, follow a quantile of the norms.

    Every step also releases, for each group r, a noisy count of the examples within the bound: Σᵢ(1[‖gᵢ‖ ≤ Cᵣ] − ½). The counts
    are part of the step's single Gaussian mechanism, so the plan's multiplier pays for gradients and counts. The next bound is
    C·exp(−η(b̃ − γ)), where b̃ is the noisy count over the plan's divisor, plus ½: an unbiased estimate of the fraction of all
    examples within the bound. With sampling rate q, its variance is (1 − q)/(4qN) from sampling plus σ_b²/(qN)² from noise.

    Args:
        rule: a rule of one norm, or a `Layerwise` rule, with the initial bounds. Counts are of ‖g‖ ≤ C, or ‖g‖ ≤ Z for `Global`,
            whose cutoff and bound move together.
        quantile: γ in (0, 1), target fraction of examples within the bound.
        learning_rate: η > 0.
        share: fraction in (0, 1) of a step's 1/σ² that pays for the counts. The gradients' noise grows by 1/√(1 − share), and the
            noise on each of K counts has standard deviation σ·√K/(2√share) (`count_deviation`; `count_share` is the inverse).
            The usual choice is a count deviation of a twentieth of the batch size.

    Guarantee:
        A centred bit is ±½, so adding or removing an example moves K counts by √K/2 regardless of its norms (bits of 0 and 1
        would move them by up to √K). With noise scale u on the counts and total sensitivity S, the counts take
        K·(½/u)² = share·S² and the gradients, of sensitivity C, the rest: S = C/√(1 − share). The next bound is computed from
        released counts, so it is post-processing. Bounds stay in [1e-12, 1e12].

    Source:
        Andrew et al. 2021, "Differentially Private Learning with Adaptive Clipping", Algorithm 1 and Theorem 1: with σ_b on the
        count, the gradients' multiplier is (1/σ² − 1/(2σ_b)²)^(−½), which is σ/√(1 − share) here.

    >>> import torch
    >>> from privet.clipping import Flat
    >>> rule = AdaptiveQuantile(Flat(bound=0.6), share=0.36)
    >>> round(rule.sensitivity, 9), rule.count_deviation(noise_multiplier=1.2)
    (0.75, 1.0)
    >>> rule.adapt({COUNTS: torch.tensor([0.5])}, divisor=100).rule.bound < 0.6
    True
    """

    rule: NormRule | Layerwise
    quantile: float = 0.5
    learning_rate: float = 0.2
    share: float = 0.01

    def __post_init__(self) -> None:
        if not isinstance(self.rule, NormRule | Layerwise):
            allowed = "a rule of one norm or a layerwise rule, such as privet.clipping.Flat(1.0)"
            fix = "Batch rules do not bound single examples, and adaptive rules already adapt their bounds."
            raise InvalidArgumentError("clipping.rule", self.rule, allowed, fix)
        between("clipping.quantile", self.quantile, 0.0, 1.0, "It is the fraction of examples within the bound; 0.5 is usual.")
        positive("clipping.learning_rate", self.learning_rate, "0.2 is usual.")
        between("clipping.share", self.share, 0.0, 1.0, "It is the share of a step's budget that pays for the counts.")

    @property
    def sensitivity(self) -> float:
        """C/√(1 − share)."""
        return self.rule.sensitivity / math.sqrt(1 - self.share)

    @property
    def remarks(self) -> tuple[str, ...]:
        """Remarks on the moving bound and the released counts."""
        return (
            *self.rule.remarks,
            "The bound is that of the first step; later bounds follow a quantile of the gradient norms, estimated from noisy "
            "counts that are also released, and the noise follows the bound",
        )

    @property
    def assumptions(self) -> tuple[str, ...]:
        """That rounding decides nothing: the counts jump at the bound."""
        return tuple(dict.fromkeys((*self.rule.assumptions, NO_TIES)))

    def count_deviation(self, noise_multiplier: float, groups: int = 1) -> float:
        """Return σ_b, the standard deviation of the noise on each count, for the plan's multiplier and K groups."""
        return noise_multiplier * math.sqrt(count("groups", groups) / self.share) / 2

    def groups(self, names: Sequence[str]) -> tuple[tuple[str, ...], ...]:
        """Return the rule's groups."""
        return self.rule.groups(names)

    def weight(self, norms: Tensor) -> Tensor:
        """Return the rule's factors."""
        return self.rule.weight(norms)

    def weights(self, norms: Tensor) -> Tensor:
        """Return the rule's factors for a (G, B) tensor of group norms."""
        return self.rule.weights(norms)

    def scale_bound(self, factor: float) -> AdaptiveQuantile:
        """Return the rule with its current bounds multiplied by the factor."""
        return replace(self, rule=self.rule.scale_bound(factor))

    def noise_scales(self, names: Sequence[str]) -> Mapping[str, float]:
        """Return the noise scales of the rule and of the counts."""
        bits = math.sqrt(len(self.groups(names))) / 2
        return {**self.rule.noise_scales(names), COUNTS: bits / (self.sensitivity * math.sqrt(self.share))}

    def statistics(self, norms: Tensor) -> Mapping[str, Tensor]:
        """Return Σᵢ(1[‖gᵢ‖ ≤ Cᵣ] − ½) for each group, (G,). Norms that are not finite count as outside the bound."""
        thresholds = norms.new_tensor([rule.threshold for rule in self.rule.group_rules(len(norms))])
        return {COUNTS: ((norms <= thresholds[:, None]).to(norms.dtype) - 0.5).sum(1)}

    def adapt(self, statistics: Mapping[str, Tensor], divisor: float) -> AdaptiveQuantile:
        """Return the rule with bounds C·exp(−η(b̃ − γ))."""
        fractions = (statistics[COUNTS].double() + 0.5).tolist()
        exponents = [-self.learning_rate * (fraction - self.quantile) for fraction in fractions]
        factors = [
            _within_range(rule, math.exp(min(_LARGEST_EXPONENT, max(-_LARGEST_EXPONENT, exponent))))
            for rule, exponent in zip(self.rule.group_rules(len(fractions)), exponents, strict=True)
        ]
        return replace(self, rule=self.rule.scale_bounds(factors))


def _within_range(rule: NormRule, factor: float) -> float:
    """Return the nearest factor that keeps the rule's bounds in range; 1 always does."""
    low, high = BOUND_RANGE[0] * (1 + _MARGIN), BOUND_RANGE[1] * (1 - _MARGIN)
    smallest, largest = min(1.0, low / min(rule.bound, rule.threshold)), max(1.0, high / max(rule.bound, rule.threshold))
    return min(max(factor, smallest), largest)


def count_share(noise_multiplier: float, count_deviation: float, groups: int = 1) -> float:
    """Return K·(σ/(2σ_b))², the `share` for the deviation σ_b of each of K counts, in examples (Andrew et al. 2021, Theorem 1).
    >>> round(1 / (1 - count_share(noise_multiplier=1.0, count_deviation=5.0)) ** 0.5, 6)
    1.005038
    """
    sigma, deviation = positive("noise_multiplier", noise_multiplier), positive("count_deviation", count_deviation)
    share = count("groups", groups) * (sigma / (2 * deviation)) ** 2
    if not share < 1:
        least = sigma * math.sqrt(groups) / 2
        raise InvalidArgumentError("count_deviation", count_deviation, f"greater than σ·√K/2 = {least:g}", "Raise it.")
    return share
