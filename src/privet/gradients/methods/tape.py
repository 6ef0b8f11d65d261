"""The tape of per-example gradients that a backward pass records, and clipping of its sum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from privet._utils.tensors import gradient_dtype, zero_sum
from privet.clipping import Rule
from privet.clipping.weighing import weigh
from privet.gradients.core.norms import full_precision, sum_product_norms
from privet.gradients.core.per_example import PerExampleGrad
from privet.gradients.masking.dispatch import mask_grad
from privet.gradients.masking.masks import Mask

Groups = Sequence[Sequence[str]]

# Weights are multiplied by this factor, so that rounding in the float32 sum cannot carry a contribution over the bound.
MARGIN = 1 - 2.0**-20
# Larger weights are lowered to it: times a factor within the range of `product_norms`, they would be infinite in float32.
_LARGEST = 1e19
# Weights of gradients longer than this approach the smallest numbers of float32.
LONG = 1e18


@dataclass(frozen=True, eq=False)
class Tape:
    """Per-example gradients of all trainable parameters for the same B examples."""

    examples: int
    parameters: Mapping[str, Tensor]
    grads: dict[str, PerExampleGrad]  # a parameter that is missing was not used, and contributes zero

    @property
    def device(self) -> torch.device:
        """Device of the parameters."""
        return next(iter(self.parameters.values())).device

    def mask(self, masks: Mapping[str, Mask]) -> Tape:
        """Return the tape of masked gradients; parameters without a mask are kept whole. This tape is consumed."""
        grads = {}
        with full_precision(self.device):
            for name in tuple(self.grads):
                grad = self.grads.pop(name)
                grads[name] = mask_grad(grad, masks[name]) if name in masks else grad
        return Tape(self.examples, self.parameters, grads)

    def group_norms(self, groups: Groups) -> Tensor:
        """Return the norm of every group's gradients, (G, B) float64."""
        with full_precision(self.device):
            squares = list(map(self._squared_norms, groups))
        return (squares[0] if len(squares) == 1 else torch.cat(squares)).sqrt_()

    def _squared_norms(self, names: Sequence[str]) -> Tensor:
        products, parts = [], []
        for grad in filter(None, map(self.grads.get, names)):
            if factors := grad.norm_factors:
                products.append(factors)
            else:
                parts.append(grad.squared_norms())
        parts += sum_product_norms(products)
        if not parts:
            return torch.zeros(1, self.examples, dtype=torch.float64, device=self.device)
        return parts[0][None] if len(parts) == 1 else torch.stack(parts).sum(0, keepdim=True)

    def weighted_sum(self, groups: Groups, weights: Tensor, *, last: bool = False) -> dict[str, Tensor]:
        """Return Σᵢ wᵢ·gᵢ for every parameter, with weights (G, B).

        With `last`, each per-example gradient is freed as soon as its sum is computed, so that memory holds less at once.
        """
        sums = {}
        with full_precision(self.device):
            for row, names in zip(weights.unbind(), groups, strict=True):
                single = row.clamp(max=_LARGEST).float()  # once for all parameters in float32, which are usually all
                for name in names:
                    grad, parameter = self.grads.pop(name, None) if last else self.grads.get(name), self.parameters[name]
                    if grad is None or self.examples == 0:
                        sums[name] = zero_sum(parameter)
                    else:
                        sums[name] = grad.weighted_sum(single if grad.dtype == torch.float32 else row)
                        if sums[name].shape != parameter.shape:  # it would be broadcast, past the norm that was measured
                            raise RuntimeError(f"the gradient of {name} has another shape than the parameter")
        return sums

    def gradients(self) -> dict[str, Tensor]:
        """Return the materialised gradients, name → (B, *shape): large."""
        with full_precision(self.device):
            return {
                name: self.grads[name].materialize()
                if name in self.grads
                else parameter.detach().new_zeros(self.examples, *parameter.shape, dtype=gradient_dtype(parameter))
                for name, parameter in self.parameters.items()
            }

    def index_select(self, index: Tensor) -> Tape:
        """Return the tape of a subset of the examples."""
        return Tape(len(index), self.parameters, {name: grad.index_select(index) for name, grad in self.grads.items()})

    def double(self) -> Tape:
        """Return the tape in float64."""
        return Tape(self.examples, self.parameters, {name: grad.double() for name, grad in self.grads.items()})


def precise_norms(tape: Tape, groups: Groups) -> Tensor:
    """Return the norm of every group's gradients, (G, B) float64, recomputed in float64 where float32 is not sufficient."""
    norms = tape.group_norms(groups)
    odd = (~(norms < LONG).all(0)).nonzero().flatten()
    if len(odd):
        norms[:, odd] = tape.index_select(odd).double().group_norms(groups)
    return norms


@dataclass(frozen=True, eq=False)
class Weights:
    """The weights by which the gradients of a tape's examples are summed, (G, B); those at `odd` are summed apart, in float64."""

    values: Tensor
    odd: Tensor | None = None  # positions; None if float32 is sufficient for all
    finite: Tensor | None = None  # of these, whether the gradient is finite

    def sum(self, tape: Tape, groups: Groups, precise: Tape | None = None) -> dict[str, Tensor]:
        """Return name → Σᵢ wᵢ·gᵢ of the names in these groups; the tape is consumed."""
        if self.odd is None or self.finite is None:
            return tape.weighted_sum(groups, self.values, last=True)
        precise = tape.index_select(self.odd).double() if precise is None else precise
        return _sum_apart(tape, precise, groups, self.values, self.odd, self.finite)


def weigh_examples(tape: Tape, rule: Rule, groups: Groups) -> tuple[Weights, dict[str, Tensor], Tensor, Tape | None]:
    """Return weights, the rule's statistics, the norms of clipping, (G, B) float64, and the tape of the odd examples.

    Examples whose norm float32 cannot represent or resolve are recomputed and summed in float64. Those whose gradient is not
    finite even there contribute exactly zero: they are excluded from the sum, as 0·∞ would be NaN; their norm is infinite.
    """
    norms = tape.group_norms(groups)
    if not norms.numel() or float(norms.max()) < LONG:  # not if any is NaN
        weights, statistics = weigh(rule, norms, groups)
        return Weights(weights * MARGIN), dict(statistics), norms, None
    odd = (~(norms < LONG).all(0)).nonzero().flatten()
    precise = tape.index_select(odd).double()
    exact = precise.group_norms(groups)
    finite = exact.isfinite().all(0)
    norms[:, odd] = torch.where(finite, exact, torch.inf)
    weights, statistics = weigh(rule, norms, groups)
    return Weights(weights * MARGIN, odd, finite), dict(statistics), norms, precise


def clip(tape: Tape, rule: Rule, groups: Groups) -> tuple[dict[str, Tensor], Tensor]:
    """Return name → Σᵢ wᵢ·gᵢ and the rule's statistics, and the norms of clipping; the tape is consumed."""
    weights, statistics, norms, precise = weigh_examples(tape, rule, groups)
    return {**weights.sum(tape, groups, precise), **statistics}, norms


def sum_precisely(tape: Tape, groups: Groups, weights: Tensor) -> dict[str, Tensor]:
    """Return Σᵢ wᵢ·gᵢ, in float64 for examples that float32 cannot represent, and without those that are not finite there."""
    odd = (~(tape.group_norms(groups) < LONG).all(0)).nonzero().flatten()
    precise = tape.index_select(odd).double()
    return _sum_apart(tape, precise, groups, weights, odd, precise.group_norms(groups).isfinite().all(0))


def _sum_apart(
    tape: Tape, precise: Tape, groups: Groups, weights: Tensor, odd: Tensor, finite: Tensor
) -> dict[str, Tensor]:  # fmt: skip
    """Return the weighted sum of all examples but those at `odd`, plus that of the finite ones of these in float64."""
    ordinary = torch.ones(tape.examples, dtype=torch.bool, device=odd.device).index_fill_(0, odd, value=False)
    regular, large = ordinary.nonzero().flatten(), finite.nonzero().flatten()
    sums = tape.index_select(regular).weighted_sum(groups, weights[:, regular])
    for name, extra in precise.index_select(large).weighted_sum(groups, weights[:, odd[large]]).items():
        sums[name] += extra.to(sums[name].dtype)
    return sums
