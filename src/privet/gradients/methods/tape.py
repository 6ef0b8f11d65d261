"""The tape: what a backward pass left behind about every parameter, and what clipping needs of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from privet.clipping import Rule
from privet.gradients.core.norms import full_precision
from privet.gradients.core.per_example import PerExampleGrad
from privet.gradients.masking.dispatch import masked
from privet.gradients.masking.masks import Mask

Groups = Sequence[Sequence[str]]

# Weights are shrunk by this much, so that rounding in the float32 sum cannot carry a contribution over the bound.
MARGIN = 1 - 2.0**-20
# Weights for longer gradients than this come close to the smallest numbers of float32.
LONG = 1e18


@dataclass(frozen=True, eq=False)
class Tape:
    """Uses of parameters by the same B examples, all uses of one parameter as one.

    Args:
        examples: B.
        parameters: name → parameter, every trainable one.
        uses: name → use; a parameter that was not used is missing and contributes zero.
    """

    examples: int
    parameters: Mapping[str, Tensor]
    uses: dict[str, PerExampleGrad]

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return next(iter(self.parameters.values())).device

    def masked(self, masks: Mapping[str, Mask]) -> Tape:
        """Return the tape of the entries that the masks keep; this one is spent. What is not named is kept whole."""
        uses = {}
        with full_precision(self.device):
            for name in tuple(self.uses):
                use = self.uses.pop(name)
                uses[name] = masked(use, masks[name]) if name in masks else use
        return Tape(self.examples, self.parameters, uses)

    def group_norms(self, groups: Groups) -> Tensor:
        """Return the norm of every group's gradients, (G, B) float64."""
        squares = torch.zeros(len(groups), self.examples, dtype=torch.float64, device=self.device)
        with full_precision(self.device):
            for row, names in zip(squares, groups, strict=True):
                for name in names:
                    if name in self.uses:
                        row += self.uses[name].squared_norms()
        return squares.sqrt_()

    def weighted_sum(self, groups: Groups, weights: Tensor, *, last: bool = False) -> dict[str, Tensor]:
        """Return Σᵢ wᵢ·gᵢ for every parameter, with weights (G, B).

        The last sum that is asked of a tape frees every use when it is done with it: what was held for the sums and the sums
        themselves would otherwise stand in memory together.
        """
        sums = {}
        with full_precision(self.device):
            for row, names in zip(weights, groups, strict=True):
                for name in names:
                    use, parameter = self.uses.pop(name, None) if last else self.uses.get(name), self.parameters[name]
                    blank = use is None or self.examples == 0
                    sums[name] = torch.zeros_like(parameter, requires_grad=False) if blank else use.weighted_sum(row)  # type: ignore[union-attr]
        return sums

    def gradients(self) -> dict[str, Tensor]:
        """Return every example's gradients, name → (B, *shape): large."""
        with full_precision(self.device):
            return {
                name: self.uses[name].materialize()
                if name in self.uses
                else parameter.detach().new_zeros(self.examples, *parameter.shape)
                for name, parameter in self.parameters.items()
            }

    def index_select(self, index: Tensor) -> Tape:
        """Return the tape of some of the examples."""
        return Tape(len(index), self.parameters, {name: use.index_select(index) for name, use in self.uses.items()})

    def double(self) -> Tape:
        """Return the tape in float64."""
        return Tape(self.examples, self.parameters, {name: use.double() for name, use in self.uses.items()})


def precise_norms(tape: Tape, groups: Groups) -> Tensor:
    """Return the norm of every group's gradients, (G, B) float64, measured in float64 where float32 does not do."""
    norms = tape.group_norms(groups)
    odd = (~norms.isfinite().all(0)).nonzero().flatten()
    if len(odd):
        norms[:, odd] = tape.index_select(odd).double().group_norms(groups)
    return norms


def clip(tape: Tape, rule: Rule, groups: Groups) -> tuple[dict[str, Tensor], Tensor]:
    """Return the clipped sum, the rule's statistics in it, and the norms that it was clipped by; the tape is spent.

    Examples whose norm float32 cannot hold or resolve are measured and summed in float64. Those whose gradient is not finite
    even there contribute exactly zero: they are left out of the sum, as 0·∞ would be NaN.

    Returns:
        Parameter name → Σᵢ wᵢ·gᵢ, and the norms, (G, B) float64 (infinite where the gradient is not finite).
    """
    norms = tape.group_norms(groups)
    ordinary = (norms < LONG).all(0)
    if bool(ordinary.all()):
        return {**tape.weighted_sum(groups, rule.weights(norms) * MARGIN, last=True), **rule.statistics(norms)}, norms
    odd = (~ordinary).nonzero().flatten()
    precise = tape.index_select(odd).double()
    exact = precise.group_norms(groups)
    finite = exact.isfinite().all(0)
    norms[:, odd] = torch.where(finite, exact, torch.inf)
    weights = rule.weights(norms) * MARGIN
    regular, large = ordinary.nonzero().flatten(), finite.nonzero().flatten()
    sums = tape.index_select(regular).weighted_sum(groups, weights[:, regular])
    for name, extra in precise.index_select(large).weighted_sum(groups, weights[:, odd[large]]).items():
        sums[name] += extra.to(sums[name].dtype)
    return {**sums, **rule.statistics(norms)}, norms
