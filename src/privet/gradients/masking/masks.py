"""Masks of parameters, cached in the forms that norms and sums of masked gradients need."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from functools import cached_property

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from privet._utils.tensors import places
from privet.errors import InvalidArgumentError
from privet.gradients.masking.kernels import load_kernels, rows


class Mask:
    """The entries of a parameter that are kept, a bool tensor of its shape. Other forms are computed on first use and cached."""

    def __init__(self, kept: Tensor) -> None:
        self.kept = kept.contiguous()
        self._numbers: dict[torch.dtype, Tensor] = {}
        self._sparse: dict[torch.dtype, Tensor] = {}
        self._views: dict[object, Mask] = {}

    @cached_property
    def left_out(self) -> Tensor:
        """The complement of the mask."""
        return ~self.kept

    @cached_property
    def places(self) -> Tensor:
        """Flat positions of the kept entries in row-major order, (K,)."""
        return places(self.kept)

    @cached_property
    def places_channels_last(self) -> Tensor:
        """`places` in a kernel (out, in, *kernel) that is stored as (out, *kernel, in), in the same order."""
        shape = self.kept.shape
        stored = torch.arange(self.kept.numel(), device=self.kept.device).view(shape[0], *shape[2:], shape[1])
        return stored.movedim(-1, 1).flatten()[self.places]

    @cached_property
    def channels_last(self) -> Mask:
        """The mask of a kernel that is stored channels last."""
        return Mask(self.kept.movedim(1, -1))

    @property
    def density(self) -> float:
        """Fraction of entries that are kept."""
        return len(self.places) / max(1, self.kept.numel())

    @property
    def skips(self) -> bool:
        """Whether a sparse `product` is faster than a dense one."""
        return self._few(load_kernels().product_pays)

    def times(self, gradients: Tensor) -> Tensor:
        """Return gradients (B, *shape) times the mask. Non-finite values stay non-finite, so that their examples are dropped."""
        return gradients * self.numbers(gradients.dtype)

    def only(self, total: Tensor) -> Tensor:
        """Set a sum to exactly zero outside the mask, in place, also where it is not finite; return it."""
        return total.masked_fill_(self.left_out, 0)

    def put(self, values: Tensor) -> Tensor:
        """Scatter kept entries (…, K) to (…, *shape), with zeros elsewhere."""
        whole = values.new_zeros(*values.shape[:-1], self.kept.numel())
        return whole.index_copy_(-1, self.places, values).view((*values.shape[:-1], *self.kept.shape))

    def numbers(self, dtype: torch.dtype) -> Tensor:
        """Return the mask as ones and zeros."""
        if dtype not in self._numbers:
            self._numbers[dtype] = self.kept.to(dtype)
        return self._numbers[dtype]

    def columns(self, x: Tensor) -> Tensor:
        """Return (B, d) transposed to (d, B), in the memory layout that products with this mask need."""
        return x.t().contiguous() if self.skips else x.t()

    def product(self, x: Tensor) -> Tensor:
        """Return m x for the mask of a matrix (p, d) and the result of `columns`, (d, B)."""
        return load_kernels().product(self._rows(x.dtype), x) if self.skips else (x.t() @ self.numbers(x.dtype).t()).t()

    def outer_product(self, left: Tensor, right: Tensor) -> Tensor:
        """Return the kept entries of left rightᵀ for columns (p, B) and (d, B) → (p, d), with exact zeros elsewhere."""
        if not self._few(load_kernels().outer_pays):
            return self.only(left @ right.t())
        return self.put(load_kernels().outer(self._rows(left.dtype), left, right))

    def view_as(self, size: Sequence[int], strides: Sequence[int], offset: int, own: Sequence[int]) -> Mask:
        """Return the mask of a view of the parameter with this size, strides and offset, whose own strides are `own`."""
        key = (tuple(size), tuple(strides), offset, tuple(own))
        if key not in self._views:
            stored = torch.empty_strided(self.kept.shape, tuple(own), dtype=torch.bool, device=self.kept.device).copy_(self.kept)
            self._views[key] = Mask(stored.as_strided(tuple(size), tuple(strides), offset))
        return self._views[key]

    def _few(self, part: float) -> bool:
        return self.kept.device.type == "cpu" and self.density <= part

    def _rows(self, dtype: torch.dtype) -> Tensor:
        """Return the mask as a sparse matrix; for a kernel, with one row per output channel."""
        if dtype not in self._sparse:
            self._sparse[dtype] = rows(self.kept.flatten(1), dtype)
        return self._sparse[dtype]


# Masks hold for many steps: a prepared mask lives as long as its tensor, and is rebuilt if that is written to.
_KNOWN: MutableMapping[Tensor, tuple[int, Mask]] = WeakTensorKeyDictionary()


def prepare_masks(masks: Mapping[str, Tensor], parameters: Mapping[str, Tensor]) -> dict[str, Mask]:
    """Validate masks, name → bool tensor of the parameter's shape, and move them to their parameters' devices."""
    found = {}
    for name, kept in masks.items():
        parameter = parameters.get(name)
        if parameter is None or kept.dtype != torch.bool or kept.shape != parameter.shape:
            described = f"{kept.dtype} of shape {tuple(kept.shape)}"
            needed = "a trainable parameter's" if parameter is None else f"torch.bool of shape {tuple(parameter.shape)}"
            raise InvalidArgumentError(f"masks[{name!r}]", described, needed)
        version, mask = _KNOWN.get(kept, (None, None))
        if mask is None or version != kept._version or mask.kept.device != parameter.device:
            mask = Mask(kept.data.to(parameter.device))  # not the tensor itself: the weak key would never expire
            _KNOWN[kept] = (kept._version, mask)
        found[name] = mask
    return found
