"""Derivation of tensors from parameters: views and vector-Jacobian products."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from privet._utils.tensors import gradient_dtype

Span = tuple[int, int]


@dataclass(frozen=True, eq=False)
class Derivation:
    """The dependence of a derived tensor D, with its graph, on one parameter p."""

    tensor: Tensor
    parameter: Tensor

    @property
    def span(self) -> Span | None:
        """The range of p's memory that D covers, in numbers of p, if D contains every entry at most once; else None."""
        if self.tensor.dtype != self.parameter.dtype:  # a complex view counts pairs of numbers
            return None
        if self.tensor.is_conj() or self.tensor.is_neg():  # a view with other signs
            return None
        if self.tensor.untyped_storage().data_ptr() != self.parameter.untyped_storage().data_ptr():
            return None
        reach = 1
        for step, size in sorted(zip(self.tensor.stride(), self.tensor.shape, strict=True)):
            if size > 1:
                if step < reach:
                    return None
                reach += step * (size - 1)
        start = int(self.tensor.storage_offset())
        return start, start + int(reach)

    @property
    def is_transpose(self) -> bool:
        """Whether D is the transpose of the matrix p."""
        p = self.parameter
        swapped = self.span is not None and p.dim() == 2 and self.tensor.shape == p.shape[::-1]
        return swapped and self.tensor.stride() == p.stride()[::-1] and self.tensor.storage_offset() == p.storage_offset()

    @property
    def is_exact(self) -> bool:
        """Whether D is a view of p that has every entry at most once, so that gradients are moved without rounding."""
        return self.tensor._base is self.parameter and self.parameter.is_contiguous() and self.span is not None

    def vjp(self, gradient: Tensor, *, batched: bool = False) -> Tensor:
        """Return the gradient of p for a gradient of D, or for each gradient of a batch, in at least float32."""
        if gradient_dtype(self.parameter) != self.parameter.dtype:
            return self._move(gradient)
        gradient = gradient.to(self.tensor.dtype)
        if not batched:
            return self._differentiate(gradient)
        try:
            return self._differentiate(gradient, batched=True)
        except RuntimeError:  # torch cannot batch the backward pass of some functions, such as products of sparse matrices
            return torch.stack([self._differentiate(one) for one in gradient])

    def _differentiate(self, gradient: Tensor, *, batched: bool = False) -> Tensor:
        (found,) = torch.autograd.grad(
            self.tensor, self.parameter, gradient, retain_graph=True, is_grads_batched=batched,
            allow_unused=True, materialize_grads=True,  # a node with several outputs leads to parameters of the others, too
        )  # fmt: skip
        return found

    def _move(self, gradient: Tensor) -> Tensor:
        """Return the gradient of p, of which D is an exact view, in the precision of the gradient."""
        p, own = self.parameter, self.tensor
        batch = gradient.shape[: gradient.dim() - own.dim()]
        found = gradient.new_zeros(*batch, p.numel())
        strides = (*(p.numel() for _ in batch), *own.stride())
        found.as_strided(gradient.shape, strides, own.storage_offset() - p.storage_offset()).copy_(gradient)
        return found.view(*batch, *p.shape)
