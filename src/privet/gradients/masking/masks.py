"""Masks of parameters, in the forms that norms and sums of masked gradients take them in."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from functools import cached_property

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from privet._utils.tensors import places
from privet.errors import InvalidArgumentError
from privet.gradients.core.per_example import Factors
from privet.gradients.masking.kernels import products, rows


class Mask:
    """Which entries of a parameter count. Its other forms are made when first asked for, and kept for the next steps.

    Args:
        kept: bool, shaped like the parameter; True where an entry counts.
    """

    def __init__(self, kept: Tensor) -> None:
        self.kept = kept.contiguous()
        self._numbers: dict[torch.dtype, Tensor] = {}
        self._sparse: dict[torch.dtype, Tensor] = {}
        self._views: dict[object, Mask] = {}

    @cached_property
    def left_out(self) -> Tensor:
        """The opposite."""
        return ~self.kept

    @cached_property
    def places(self) -> Tensor:
        """Where the kept entries are, row by row, (K,)."""
        return places(self.kept)

    @cached_property
    def places_channels_last(self) -> Tensor:
        """Where they are in a kernel (out, in, *kernel) that is stored as (out, *kernel, in), in the same order."""
        shape = self.kept.shape
        stored = torch.arange(self.kept.numel(), device=self.kept.device).view(shape[0], *shape[2:], shape[1])
        return stored.movedim(-1, 1).flatten()[self.places]

    @cached_property
    def channels_last(self) -> Mask:
        """The mask of a kernel as it is stored then."""
        return Mask(self.kept.movedim(1, -1))

    @property
    def density(self) -> float:
        """Part of the entries that are kept."""
        return len(self.places) / max(1, self.kept.numel())

    @property
    def skips(self) -> bool:
        """Whether `product` is faster when it skips the entries that are not kept."""
        return self._few(products().product_pays)

    @property
    def samples(self) -> bool:
        """Whether `entries` is faster than forming gradients."""
        return self._few(products().entries_pay)

    def times(self, gradients: Tensor) -> Tensor:
        """Return gradients (B, *shape) times the mask. What is not finite stays so: the example is to be noticed and dropped."""
        return gradients * self.numbers(gradients.dtype)

    def only(self, total: Tensor) -> Tensor:
        """Put exact zeros into a sum where nothing is kept, also for what is not finite there, and return it."""
        return total.masked_fill_(self.left_out, 0)

    def put(self, values: Tensor) -> Tensor:
        """Return the kept entries (…, K) in their places, (…, *shape), with zeros elsewhere."""
        whole = values.new_zeros(*values.shape[:-1], self.kept.numel())
        return whole.index_copy_(-1, self.places, values).view((*values.shape[:-1], *self.kept.shape))

    def numbers(self, dtype: torch.dtype) -> Tensor:
        """Return the mask as ones and zeros."""
        if dtype not in self._numbers:
            self._numbers[dtype] = self.kept.to(dtype)
        return self._numbers[dtype]

    def columns(self, x: Tensor) -> Tensor:
        """Return (B, d) as (d, B), laid out in memory as the products with this mask of a matrix take it."""
        return x.t().contiguous() if self.skips else x.t()

    def product(self, x: Tensor) -> Tensor:
        """Return m x for the mask of a matrix (p, d) and columns (d, B), laid out as they are."""
        return products().product(self._rows(x.dtype), x) if self.skips else (x.t() @ self.numbers(x.dtype).t()).t()

    def outer_product(self, left: Tensor, right: Tensor) -> Tensor:
        """Return the kept entries of left rightᵀ for columns (p, B) and (d, B) → (p, d), with exact zeros elsewhere."""
        if not self._few(products().outer_pays):
            return self.only(left @ right.t())
        return self.put(products().outer(self._rows(left.dtype), left, right))

    def entries(self, factors: Factors) -> tuple[Tensor, Tensor]:
        """Return the kept entries of every example's gradient, (K, B), in the order of `places`, and their squares, (B,)."""
        return products().entries(self._rows(factors.left.dtype), factors)

    def seen_through(self, size: Sequence[int], strides: Sequence[int], offset: int, own: Sequence[int]) -> Mask:
        """Return the mask of a view of the parameter.

        Args:
            size, strides: of the view.
            offset: where it begins, counted from where the parameter does.
            own: strides of the parameter.
        """
        key = (tuple(size), tuple(strides), offset, tuple(own))
        if key not in self._views:
            stored = torch.empty_strided(self.kept.shape, tuple(own), dtype=torch.bool, device=self.kept.device).copy_(self.kept)
            self._views[key] = Mask(stored.as_strided(tuple(size), tuple(strides), offset))
        return self._views[key]

    def _few(self, part: float) -> bool:
        return self.kept.device.type == "cpu" and self.density <= part

    def _rows(self, dtype: torch.dtype) -> Tensor:
        """Return the mask as a sparse matrix, that of a kernel with one row an output channel."""
        if dtype not in self._sparse:
            self._sparse[dtype] = rows(self.kept.flatten(1), dtype)
        return self._sparse[dtype]


# Masks hold for many steps: what is made of one is kept as long as its tensor, and made anew if that was written to.
_KNOWN: MutableMapping[Tensor, tuple[int, Mask]] = WeakTensorKeyDictionary()


def prepared(masks: Mapping[str, Tensor], parameters: Mapping[str, Tensor]) -> dict[str, Mask]:
    """Return the masks ready for use, on their parameters' devices.

    Args:
        masks: name → bool tensor, True where an entry is kept; a parameter that is not named is kept whole.
        parameters: name → trainable parameter.

    Raises:
        InvalidArgumentError: a mask is of no trainable parameter, of another type or shape.
    """
    found = {}
    for name, kept in masks.items():
        parameter = parameters.get(name)
        if parameter is None or kept.dtype != torch.bool or kept.shape != parameter.shape:
            described = f"{kept.dtype} of shape {tuple(kept.shape)}"
            needed = "a trainable parameter's" if parameter is None else f"torch.bool of shape {tuple(parameter.shape)}"
            raise InvalidArgumentError(f"masks[{name!r}]", described, needed)
        version, mask = _KNOWN.get(kept, (None, None))
        if mask is None or version != kept._version or mask.kept.device != parameter.device:
            mask = Mask(kept.data.to(parameter.device))  # not the tensor itself: it would never be forgotten
            _KNOWN[kept] = (kept._version, mask)
        found[name] = mask
    return found
