"""Clipped sums: tensors that carry their sensitivity.

Noise can only be added to a `ClippedSum`, which states how far one example can move it. Operations that would silently break the
guarantee raise a `TypeError` that says what to do instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from privet._utils.tensors import Tensors, scale_tensors, zero_sum
from privet.errors import check_public_number, positive


@dataclass(frozen=True)
class BatchSlice:
    """Positions [start, stop) of one draw of a run: the members of a sampled batch that a sum covers."""

    draw: int
    start: int
    stop: int


@dataclass(frozen=True, eq=False)
class RowCounts:
    """How many examples look up each row of embedding tables, by which a release selects rows."""

    counts: Tensors  # name of a table of V rows → (V,) float64 sparse sum over the examples
    bound: float  # largest L2 distance by which adding or removing one example can move all counts together
    threshold: float  # smallest noised count of a row that is released
    share: float  # part of 1/σ² that the noise on the counts gets; the gradient gets the rest


@dataclass(frozen=True, eq=False)
class ClippedSum:
    """Σᵢ wᵢ·gᵢ over examples, where no example contributes more than `sensitivity` in L2 norm.

    Private: it must not leave the process without noise.

    Args:
        tensors: parameter name → sum, shaped like the parameter; also the rule's statistics under their names. A sparse sum is
            released in the rows that it stores, which must be public unless `rows` selects among them.
        sensitivity: largest L2 distance, over all tensors together and each divided by its noise scale, by which adding or
            removing one example can move the sum.
        norms: (B,) per-example gradient norms before clipping, in batch order; (G, B) for a rule with G groups. Non-private
            diagnostics.
        part: positions of the draw that the sum covers; only needed to `join` the parts of one batch.
        noise_scales: name → relative standard deviation of the tensor's noise, > 0; 1 for names left out.
        support: name → bool tensor, True where a coordinate is released; tensors left out are released whole. Public.
        rows: counts by which the release selects rows of sparse sums; None to release the rows that these store.
    """

    tensors: Tensors
    sensitivity: float
    norms: Tensor
    part: BatchSlice | None = None
    noise_scales: Mapping[str, float] = field(default_factory=dict)
    support: Tensors | None = None
    rows: RowCounts | None = None

    def __post_init__(self) -> None:
        positive("sensitivity", self.sensitivity, "The noise is scaled to it.")
        for name, mask in (self.support or {}).items():
            if name not in self.tensors or mask.dtype != torch.bool or mask.shape != self.tensors[name].shape:
                raise TypeError(f"the support of {name} must be a bool tensor of the shape of its sum")

    @staticmethod
    def zero(parameters: Mapping[str, Tensor], sensitivity: float, part: BatchSlice | None = None) -> ClippedSum:
        """Return the sum over no examples: zeros shaped like the parameters, noised and accounted for like any other sum."""
        tensors = {name: zero_sum(parameter) for name, parameter in parameters.items()}
        return ClippedSum(tensors, sensitivity, torch.zeros(0, dtype=torch.float64, device="cpu"), part)

    def join(self, other: ClippedSum) -> ClippedSum:
        """Return the sum over two adjacent parts of one draw; it reuses the memory of this sum, which cannot be joined again.

        The parts hold different examples, so one example still moves the result by at most the larger sensitivity.
        """
        if not isinstance(other, ClippedSum):
            raise TypeError(f"a ClippedSum can only be joined with another part of its draw, not with {type(other).__name__}")
        mine, theirs = self.part, other.part
        if mine is None or theirs is None or mine.draw != theirs.draw or mine.stop != theirs.start:
            raise TypeError(
                f"cannot join parts {mine} and {theirs}: only adjacent positions of one draw are known to hold different "
                "examples; the sensitivities of sums that may share an example would add up"
            )
        if not _same_support(self.support, other.support):
            raise TypeError(
                "cannot join parts with different masks: coordinates that only one of them keeps would be released without noise"
            )
        for name, tensor in self.tensors.items():
            tensor.add_(other.tensors[name])
        for name, counts in ({} if self.rows is None or other.rows is None else self.rows.counts).items():
            counts.add_(other.rows.counts[name])  # type: ignore[union-attr]
        object.__setattr__(self, "part", None)
        norms, part = torch.cat([self.norms, other.norms.to(self.norms.device)], dim=-1), replace(mine, stop=theirs.stop)
        return replace(self, sensitivity=max(self.sensitivity, other.sensitivity), norms=norms, part=part)

    def with_dense_noise(self) -> ClippedSum:
        """Return the sum with noise on every coordinate, including those that a mask has set to zero."""
        return replace(self, support=None)

    def __mul__(self, factor: object) -> ClippedSum:
        number = check_public_number(factor, "scaling a ClippedSum")
        return replace(self, tensors=scale_tensors(self.tensors, number), sensitivity=self.sensitivity * abs(number))

    __rmul__ = __mul__

    def __truediv__(self, divisor: object) -> ClippedSum:
        return self * (1.0 / check_public_number(divisor, "dividing a ClippedSum"))

    def __add__(self, other: object) -> ClippedSum:
        raise TypeError(
            "adding to a ClippedSum would silently change its sensitivity; use .join() for the parts of one batch, and noise "
            "different batches separately, each with its own token"
        )

    __radd__ = __sub__ = __rsub__ = __add__


def _same_support(one: Tensors | None, other: Tensors | None) -> bool:
    if one is other or one is None or other is None:
        return one is other
    return one.keys() == other.keys() and all(one[name] is other[name] or torch.equal(one[name], other[name]) for name in one)
